# SPDX-License-Identifier: Apache-2.0
"""How an attempt divides its steps into calls of the graph."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow  # importing TensorFlow takes seconds


@pytest.mark.parametrize(
    ("steps", "seconds", "expected"),
    [(1, 3.0, 1), (1, 0.01, 2), (64, 0.5, 128), (64, 0.8, 80), (100, 1.0, 100), (100, 4.0, 25), (8, 0.0, 16)],
)
def test_a_call_grows_until_it_takes_a_second(steps: int, seconds: float, expected: int) -> None:
    """A signal is only noticed between calls, so none may take long; compiling must not look like a slow step."""
    from digits_parts.attempt import next_call

    assert next_call(steps, seconds) == expected
