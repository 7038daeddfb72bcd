# SPDX-License-Identifier: Apache-2.0
"""The Python with JAX, PyTorch and keras-hub, which ``scripts/test-frameworks`` makes."""

from __future__ import annotations

import os

import pytest

PYTHON = os.environ.get("FRAMEWORKS_PYTHON", "")
needs_frameworks = pytest.mark.skipif(not PYTHON, reason="runs in scripts/test-frameworks: its packages take 4 GB")
