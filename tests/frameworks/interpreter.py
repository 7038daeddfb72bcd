# SPDX-License-Identifier: Apache-2.0
"""The Python with JAX, PyTorch and keras-hub, which ``scripts/test-frameworks`` makes."""

from __future__ import annotations

import os

PYTHON = os.environ.get("FRAMEWORKS_PYTHON", "")
"""Tests that need it are marked ``frameworks``, which scripts/test leaves out: the packages take 4 GB."""
