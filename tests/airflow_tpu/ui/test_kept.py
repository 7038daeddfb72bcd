# SPDX-License-Identifier: Apache-2.0
"""What a page shows is read again when it is old or about something else, and not in between."""

from __future__ import annotations

import itertools

import pytest

from airflow_tpu.ui.kept import Kept


def test_a_value_is_read_again_when_it_is_old_or_about_something_else() -> None:
    """Within its age it is given again; after it, and for another matter, it is read."""
    now, numbers = [0.0], itertools.count(1)
    kept = Kept[int](60.0, lambda: now[0])
    assert kept.get(lambda: next(numbers), "a") == 1
    now[0] = 59.9
    assert kept.get(lambda: next(numbers), "a") == 1
    assert kept.get(lambda: next(numbers), "b") == 2
    now[0] = 119.9
    assert kept.get(lambda: next(numbers), "b") == 3


def test_a_failure_is_not_kept() -> None:
    """After a failed reading the next one reads."""
    kept = Kept[int](60.0, lambda: 0.0)

    def fail() -> int:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        kept.get(fail)
    assert kept.is_old()
    assert kept.get(lambda: 1) == 1
