# SPDX-License-Identifier: Apache-2.0
"""The training loop and its state: everything that a resumed run needs to continue bit for bit."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from digits_parts.data import Digits, Split, stream
from digits_parts.model import DigitsModel, optimizer
from trc.contract import EXIT_DIVERGED, ContractExit
from trc.report import write_atomically
from trc.tensorflow import Accelerator

HISTORY = "history.jsonl"
VARIABLES = "variables"


@dataclass(frozen=True)
class Settings:
    """Everything that shapes the result: on a CPU equal settings and data end with equal weights."""

    steps: int
    batch_size: int
    learning_rate: float
    dropout: float
    seed: int
    eval_every: int


class Trainer:
    """A model in training on one strategy.

    :param accelerator: where to train.
    :param digits: data set.
    :param settings: what shapes the run.
    """

    def __init__(self, accelerator: Accelerator, digits: Digits, settings: Settings) -> None:
        self._strategy = accelerator.strategy
        self._digits = digits
        self.settings = settings
        self.history: list[dict[str, Any]] = []
        keras.utils.set_random_seed(settings.seed)
        with self._strategy.scope():
            self.model = DigitsModel(settings.seed, settings.dropout, settings.batch_size)
            self._optimizer = optimizer(settings.learning_rate, settings.steps)
            self._optimizer.build(self.model.trainable_variables)
        # Sums since the last row of the history, and the best validation accuracy so far: part of the state, or a
        # resumed run would report other numbers.
        self._tally = tf.Variable([0.0, 0.0, 0.0], trainable=False, name="tally")
        self._best = tf.Variable([-1.0, 0.0], trainable=False, name="best")
        self._step = 0
        self._stream: Iterator[Any] | None = None
        self._run = tf.function(self._steps)

    @property
    def step(self) -> int:
        """Completed steps."""
        return self._step

    @property
    def best(self) -> tuple[float, int]:
        """Best validation accuracy and the step at which it was measured."""
        accuracy, step = self._best.numpy()
        return float(accuracy), int(step)

    def variables(self) -> dict[str, Any]:
        """Every variable of the run by a stable name: two runs are equal if these are."""
        named = {variable.path: variable.value for variable in self.model.variables + self._optimizer.variables}
        return {**named, "tally": self._tally, "best": self._best}

    def save(self, directory: Path) -> None:
        """Write the state into an empty directory.

        :raises OSError: if that fails; TensorFlow has errors of its own for a full or a missing disk.
        """
        try:
            tf.train.Checkpoint(variables=self.variables()).write(str(directory / VARIABLES))
        except tf.errors.OpError as error:
            raise OSError(error.message) from error
        write_atomically(directory / HISTORY, history_bytes(self.history))

    def restore(self, directory: Path) -> None:
        """Load a state that :meth:`save` wrote."""
        status = tf.train.Checkpoint(variables=self.variables()).read(str(directory / VARIABLES))
        status.assert_consumed()
        self.history = [json.loads(line) for line in (directory / HISTORY).read_text().splitlines()]
        self._step = int(self._optimizer.iterations.numpy())
        self._stream = None

    def advance(self, steps: int) -> tuple[float, float]:
        """Train some steps in one call of the graph; mean loss and accuracy since the last row of the history.

        :raises ContractExit: 70 if the loss is no longer finite.
        """
        if self._stream is None:
            span = (self._step, self.settings.steps)
            batches = stream(tf, self._digits.train, self.settings.batch_size, self.settings.seed, span)
            self._stream = iter(self._strategy.experimental_distribute_dataset(batches))
        self._run(self._stream, tf.constant(steps))
        self._step += steps
        loss, correct, examples = (float(value) for value in self._tally.numpy())
        if not math.isfinite(loss):
            raise ContractExit(EXIT_DIVERGED, f"the loss is {loss} at step {self._step}: lower --learning-rate")
        return loss / examples, correct / examples

    def evaluate(self, split: Split) -> dict[str, float]:
        """Mean loss and accuracy on a split, without dropout."""
        return measure(self.model, split)

    def close_row(self) -> list[Mapping[str, Any]]:
        """End an interval of the history: training means since the last one, and the validation set now."""
        loss, correct, examples = (float(value) for value in self._tally.numpy())
        self._tally.assign([0.0, 0.0, 0.0])
        validation = self.evaluate(self._digits.validation)
        if validation["accuracy"] > self.best[0]:
            self._best.assign([validation["accuracy"], float(self._step)])
        epoch = self._step * self.settings.batch_size // len(self._digits.train)
        place = {"step": self._step, "epoch": epoch}
        rows: list[Mapping[str, Any]] = [
            {**place, "split": "train", "loss": loss / examples, "accuracy": correct / examples},
            {**place, "split": "validation", **validation},
        ]
        self.history.extend(dict(row) for row in rows)
        return rows

    def _steps(self, batches: Any, steps: Any) -> None:
        """Several steps in one call. The tally is summed step by step, whatever the length of a call."""
        tally = tf.convert_to_tensor(self._tally)
        for _ in tf.range(steps):
            per_replica = self._strategy.run(self._one_step, args=next(batches))
            tally += self._strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica, axis=None)
        self._tally.assign(tally)

    def _one_step(self, images: Any, labels: Any, rows: Any) -> Any:
        """One optimizer step on one replica's share of the global batch; its sums of loss, hits and examples."""
        with tf.GradientTape() as tape:
            logits = self.model.training_logits(images, rows, self._optimizer.iterations)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_sum(losses) / self.settings.batch_size
        weights = self.model.trainable_variables
        self._optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        hits = tf.equal(tf.argmax(logits, axis=1, output_type=tf.int32), labels)
        counted = tf.cast(tf.size(labels), tf.float32)
        return tf.stack([tf.reduce_sum(losses), tf.reduce_sum(tf.cast(hits, tf.float32)), counted])


def history_bytes(rows: list[dict[str, Any]]) -> bytes:
    """The history as JSON lines."""
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def measure(model: Callable[[Any], Any], split: Split) -> dict[str, float]:
    """Mean loss and accuracy of any model of digits on a split.

    :param model: from images (n, 8, 8, 1), 0 to 16, to logits (n, 10).
    """
    # A SavedModel takes what its signature names, floats.
    logits = model(tf.constant(split.images, tf.float32))
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(split.labels, logits)
    hits = tf.equal(tf.argmax(logits, axis=1, output_type=tf.int32), split.labels)
    return {"loss": float(tf.reduce_mean(losses)), "accuracy": float(tf.reduce_mean(tf.cast(hits, tf.float32)))}
