# SPDX-License-Identifier: Apache-2.0
"""TensorFlow, imported once, by the tests that need it."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(scope="session")
def tf() -> Any:
    """The module."""
    import tensorflow

    return tensorflow
