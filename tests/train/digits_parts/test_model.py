# SPDX-License-Identifier: Apache-2.0
"""Dropout whose masks need no saved state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.slow  # importing TensorFlow takes seconds


def mask(tf: Any, step: int, rows: list[int], rate: float = 0.5) -> Any:
    """Which units of some rows are kept, as the factor that dropout applies."""
    from digits_parts.model import step_dropout

    features = tf.ones([len(rows), 40])
    return step_dropout(features, rate, (1, tf.constant(step, tf.int64)), tf.constant(rows), 8).numpy()


def test_dropout_depends_on_the_row_and_the_step_but_not_on_the_replica(tf: Any) -> None:
    """Two replicas with four rows each drop what one device with eight rows drops; the next step drops other units."""
    whole = mask(tf, 5, list(range(8)))
    np.testing.assert_array_equal(whole, np.concatenate([mask(tf, 5, [0, 1, 2, 3]), mask(tf, 5, [4, 5, 6, 7])]))
    assert len(np.unique(whole, axis=0)) == 8
    assert not np.array_equal(whole, mask(tf, 6, list(range(8))))


def test_dropout_keeps_the_expected_share_and_scale(tf: Any) -> None:
    """A quarter of the units is dropped, the others are scaled so that the mean stays."""
    kept = np.concatenate([mask(tf, step, list(range(8)), rate=0.25) for step in range(20)])
    assert set(np.unique(kept).round(5)) == {0.0, np.float32(1.33333)}
    assert kept.mean() == pytest.approx(1.0, abs=0.03)
    np.testing.assert_array_equal(mask(tf, 1, [0, 1], rate=0.0), np.ones((2, 40)))
