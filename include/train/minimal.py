# SPDX-License-Identifier: Apache-2.0
"""The script to copy: TensorFlow on a TPU VM, a GPU or a CPU, with checkpoints, a stop on request, and a figure.

::

    python include/train/minimal.py --steps 2000        # writes ./output

Replace what is marked "yours": the examples, the model, the figure. Copy the folder trc/ with it. Killed at any instant
it continues from its last checkpoint and ends with the same figure, because the examples of a step depend only on the
seed and the step.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from trc.checkpoint import CheckpointStore
from trc.contract import EXIT_BAD_CONFIG, EXIT_DONE, EXIT_STOPPED, EXIT_STORAGE, Contract, ContractExit, StopRequest
from trc.report import Reporter, write_atomically
from trc.tensorflow import choose_strategy, tpu_target

BATCH = 64  # examples per step, over all replicas


def examples() -> tuple[Any, Any]:
    """Yours: inputs and labels, the same at every call."""
    points = np.random.RandomState(0).uniform(-1.0, 1.0, (2000, 2)).astype("float32")
    return points, (points[:, 0] * points[:, 1] > 0).astype("int32")  # in which quadrants a point lies


def build_model(keras: Any) -> Any:
    """Yours: from inputs to logits."""
    layers = keras.layers
    return keras.Sequential([layers.Input((2,)), layers.Dense(32, activation="relu"), layers.Dense(2)])


def accuracy(model: Any) -> float:
    """Yours: the figure by which runs are compared."""
    points, labels = examples()
    return float(np.mean(np.argmax(model(points).numpy(), axis=1) == labels))


class Training:
    """The model, its optimizer, and what they have done so far.

    :param strategy: of the accelerator.
    :param steps: of the whole run.
    :param seed: of the weights and of the order of the examples.
    """

    def __init__(self, strategy: Any, steps: int, seed: int) -> None:
        self._tf, keras = importlib.import_module("tensorflow"), importlib.import_module("keras")
        self._strategy, self._steps, self._seed = strategy, steps, seed
        self.step = 0
        self.rows: list[str] = []  # of metrics.jsonl
        keras.utils.set_random_seed(seed)
        with strategy.scope():
            self.model = build_model(keras)
            self._optimizer = keras.optimizers.Adam(1e-2)
            self._optimizer.build(self.model.trainable_variables)
        variables = self.model.variables + self._optimizer.variables
        self._state = self._tf.train.Checkpoint(variables={one.path: one.value for one in variables})
        self._batches: Iterator[Any] | None = None
        self._call = self._tf.function(self._all_replicas)

    def save(self, directory: Path) -> None:
        """Write everything that a resumed run needs."""
        try:
            self._state.write(str(directory / "variables"))
        except self._tf.errors.OpError as error:
            raise OSError(error.message) from error
        write_atomically(directory / "metrics.jsonl", self.metrics)

    def restore(self, directory: Path, step: int) -> None:
        """Load what :meth:`save` wrote at a step."""
        self._state.read(str(directory / "variables")).assert_consumed()
        self.rows = (directory / "metrics.jsonl").read_text().splitlines()
        self.step = step

    @property
    def metrics(self) -> bytes:
        """Content of metrics.jsonl."""
        return "".join(f"{row}\n" for row in self.rows).encode()

    def advance(self) -> float:
        """Train one step; return its loss."""
        if self._batches is None:
            batches = self._tf.data.Dataset.range(self.step, self._steps).map(self._batch)
            self._batches = iter(self._strategy.experimental_distribute_dataset(batches))
        loss = float(self._call(*next(self._batches)))
        self.step += 1
        return loss

    def _batch(self, step: Any) -> tuple[Any, Any]:
        """Draw the examples of a step: a function of seed and step, so that no position has to be saved."""
        (points, labels), tf = examples(), self._tf
        seed = tf.stack([tf.constant(self._seed, tf.int64), step])
        rows = tf.random.stateless_uniform([BATCH], seed, 0, len(labels), tf.int32)
        return tf.gather(points, rows), tf.gather(labels, rows)

    def _all_replicas(self, points: Any, labels: Any) -> Any:
        losses = self._strategy.run(self._one_replica, args=(points, labels))
        return self._strategy.reduce(self._tf.distribute.ReduceOp.SUM, losses, axis=None)

    def _one_replica(self, points: Any, labels: Any) -> Any:
        with self._tf.GradientTape() as tape:
            losses = self._tf.nn.sparse_softmax_cross_entropy_with_logits(labels, self.model(points))
            loss = self._tf.reduce_sum(losses) / BATCH
        weights = self.model.trainable_variables
        self._optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss


def run(options: argparse.Namespace, contract: Contract, stop: StopRequest, reporter: Reporter) -> Training:
    """Train from the newest checkpoint to the last step.

    :raises ContractExit: if the run is asked to stop, or cannot start, save or continue.
    """
    reporter.progress("importing")
    # Everything that shapes the result: a checkpoint of another configuration is refused.
    store = CheckpointStore(contract.checkpoint_dir, f"{options.steps} steps, seed {options.seed}", contract.attempt)
    found = store.newest(contract.resume)  # the newest whole one, None at the very beginning
    tf = importlib.import_module("tensorflow")
    accelerator = choose_strategy(tf, contract.accel, tpu_target(os.environ))
    if contract.worker_count > 1 or BATCH % accelerator.replicas:
        raise ContractExit(EXIT_BAD_CONFIG, f"trains on one host, in batches of {BATCH}: {accelerator.description}")
    training = Training(accelerator.strategy, options.steps, options.seed)
    if found is not None:
        training.restore(found.directory, found.step)
    print(f"training on {accelerator.description}, from step {training.step} of {options.steps}", flush=True)
    while training.step < options.steps:
        if stop.reason:
            save(store, training, "signal")
            raise ContractExit(EXIT_STOPPED, f"stopped on request ({stop.reason}); step {training.step} is durable")
        loss = training.advance()
        if training.step % options.save_every == 0 or training.step == options.steps:
            row = {"step": training.step, "loss": loss, "accuracy": accuracy(training.model)}
            training.rows.append(json.dumps(row))
            save(store, training, "periodic")
            print(training.rows[-1], flush=True)
        reporter.progress("training", step=training.step, total_steps=options.steps)
    return training


def save(store: CheckpointStore, training: Training, reason: str) -> None:
    """Make the current step durable.

    :raises ContractExit: 74 if that fails.
    """
    try:
        store.commit(training.step, training.save, reason)
    except OSError as error:
        raise ContractExit(EXIT_STORAGE, f"cannot save step {training.step}: {error}") from error


def main(arguments: list[str] | None = None) -> int:
    """Run the script; return its exit status."""
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000, help="training steps in all")
    parser.add_argument("--save-every", type=int, default=100, help="steps between two checkpoints")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and of the order of the examples")
    options = parser.parse_args(arguments)
    contract = Contract.from_environment()
    stop, reporter = StopRequest(contract), Reporter(contract)
    stop.install()  # before TensorFlow is imported: that takes seconds
    try:
        training = run(options, contract, stop, reporter)
    except ContractExit as end:
        print(end, flush=True)
        reporter.result("stopped" if end.code == EXIT_STOPPED else "failed", end.code, message=str(end))
        return end.code
    # Everything in the output directory is copied to the bucket; result.json comes last.
    write_atomically(contract.output_dir / "metrics.jsonl", training.metrics)
    training.model.save_weights(str(contract.output_dir / "model.weights.h5"))
    figure = {"value": accuracy(training.model), "higher_is_better": True}
    reporter.result("done", EXIT_DONE, metrics={"accuracy": figure})
    print(f"done: accuracy {figure['value']:.4f}", flush=True)
    return EXIT_DONE


if __name__ == "__main__":
    sys.exit(main())
