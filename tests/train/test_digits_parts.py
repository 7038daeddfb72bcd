"""The pieces that make a resumed run equal an undisturbed one, each on its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from digits_data import Split, stream

pytestmark = pytest.mark.slow  # importing TensorFlow takes seconds

BATCH = 7
COUNT = 30


@pytest.fixture(scope="module")
def tf() -> Any:
    import tensorflow

    return tensorflow


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


def mask(tf: Any, step: int, rows: list[int], rate: float = 0.5) -> Any:
    """Which units of some rows are kept, as the factor that dropout applies."""
    from digits_model import step_dropout

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


@pytest.mark.parametrize(
    ("steps", "seconds", "expected"),
    [(1, 3.0, 1), (1, 0.01, 2), (64, 0.5, 128), (64, 0.8, 80), (100, 1.0, 100), (100, 4.0, 25), (8, 0.0, 16)],
)
def test_a_call_grows_until_it_takes_a_second(steps: int, seconds: float, expected: int) -> None:
    """A signal is only noticed between calls, so none may take long; compiling must not look like a slow step."""
    from digits_run import next_call

    assert next_call(steps, seconds) == expected


def test_what_was_saved_is_every_variable_of_the_model_and_the_optimizer(tf: Any) -> None:
    """The named variables are complete: weights, optimizer slots and counter, tally and best value."""
    from digits_data import load
    from digits_training import Settings, Trainer
    from trc_tensorflow import Chosen

    chosen = Chosen(tf.distribute.get_strategy(), "cpu", 1)
    trainer = Trainer(chosen, load(""), Settings(10, 16, 1e-3, 0.3, 0, 5))
    names = set(trainer.variables())
    weights = {variable.path for variable in trainer.model.weights}
    assert len(weights) == 8
    assert weights | {"tally", "best", "adam_w/iteration"} <= names
    slots = [name for name in names if name.endswith(("_momentum", "_velocity"))]
    assert len(slots) == 2 * len(weights)
    assert not [name for name in names if "seed" in name]
