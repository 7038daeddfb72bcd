# SPDX-License-Identifier: Apache-2.0
"""The order of the examples is a function of the seed and the step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from digits_parts.data import Split, stream

pytestmark = pytest.mark.slow  # importing TensorFlow takes seconds

BATCH = 7
COUNT = 30


@pytest.fixture(scope="module")
def split() -> Split:
    """Images whose first pixel is their number."""
    images = np.zeros((COUNT, 8, 8, 1), np.uint8)
    images[:, 0, 0, 0] = np.arange(COUNT)
    return Split(images, np.arange(COUNT, dtype=np.int32))


def order(tf: Any, split: Split, steps: tuple[int, int], seed: int = 3) -> list[list[int]]:
    """The numbers of the examples of each batch."""
    return [labels.tolist() for _, labels, _ in stream(tf, split, BATCH, seed, steps).as_numpy_iterator()]


def test_every_epoch_sees_every_example_once_in_an_order_of_its_own(tf: Any, split: Split) -> None:
    """Batches do not divide the epoch, so they cross its end; nothing is lost or repeated there."""
    seen = [number for batch in order(tf, split, (0, COUNT)) for number in batch]
    epochs = [seen[start : start + COUNT] for start in range(0, len(seen), COUNT)]
    assert len(epochs) == BATCH
    assert all(sorted(epoch) == list(range(COUNT)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == BATCH


@pytest.mark.parametrize("step", [1, 4, 5, 17])
def test_the_order_after_a_resume_is_the_one_of_an_undisturbed_run(tf: Any, split: Split, step: int) -> None:
    """The position in the data follows from the step alone, in mid-epoch and at its borders."""
    assert order(tf, split, (step, 20)) == order(tf, split, (0, 20))[step:]


def test_another_seed_gives_another_order(tf: Any, split: Split) -> None:
    """Two seeds do not share their permutations."""
    assert order(tf, split, (0, 4), seed=3) != order(tf, split, (0, 4), seed=4)


def test_images_and_labels_stay_together(tf: Any, split: Split) -> None:
    """The shuffled image is the one of the shuffled label, and the rows number the batch."""
    images, labels, rows = next(stream(tf, split, BATCH, 3, (2, 3)).as_numpy_iterator())
    assert images[:, 0, 0, 0].tolist() == labels.tolist()
    assert rows.tolist() == list(range(BATCH))
