# SPDX-License-Identifier: Apache-2.0
"""Trainings that save with what TensorFlow and Keras bring: ``tensorflow_training.py DIRECTORY MECHANISM ...``.

The directory may be a ``gs://`` URI. Several mechanisms run one after the other, each as if it were alone.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gate
import keras
import numpy as np
import tensorflow as tf

EPOCHS, BATCHES, BATCH = 3, 4, 8
POINTS = np.random.RandomState(0).uniform(-1, 1, (BATCHES * BATCH, 2)).astype("float32")
LABELS = (POINTS[:, 0] * POINTS[:, 1] > 0).astype("int32")


def build_model() -> Any:
    """A small model, ready for ``fit``."""
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Input((2,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(2)]
    model = keras.Sequential(layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss)
    model.optimizer.build(model.trainable_variables)
    return model


class Gate(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Stands behind the callback that saves: what it sees is saved."""

    def on_train_begin(self, logs: Any = None) -> None:
        gate.begins(int(self.model.optimizer.iterations))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        gate.passed(int(self.model.optimizer.iterations))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        gate.saved(int(self.model.optimizer.iterations))


def fit(model: Any, saver: Any, **options: Any) -> Any:
    """Train with a callback that saves."""
    options.update(batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0, callbacks=[saver, Gate()])
    model.fit(POINTS, LABELS, **options)
    return model


def backup(directory: str) -> Any:
    """BackupAndRestore: ``fit`` continues by itself."""
    return fit(build_model(), keras.callbacks.BackupAndRestore(directory))


def model_checkpoint(directory: str) -> Any:
    """ModelCheckpoint: the newest file is loaded, and its name says the epoch."""
    found = sorted(tf.io.gfile.glob(f"{directory}/*.keras"))
    model = keras.models.load_model(found[-1]) if found else build_model()
    saver = keras.callbacks.ModelCheckpoint(directory + "/{epoch:04d}.keras")
    return fit(model, saver, initial_epoch=int(Path(found[-1]).stem) if found else 0)


def manager(directory: str) -> Any:
    """CheckpointManager, in a loop of one's own."""
    model = build_model()
    state = tf.train.Checkpoint(model=model, optimizer=model.optimizer, step=tf.Variable(0, dtype=tf.int64))
    keeper = tf.train.CheckpointManager(state, directory, max_to_keep=2)
    keeper.restore_or_initialize()
    gate.begins(int(state.step))
    for step in range(int(state.step), EPOCHS * BATCHES):
        rows = slice(step % BATCHES * BATCH, (step % BATCHES + 1) * BATCH)
        model.train_on_batch(POINTS[rows], LABELS[rows])
        state.step.assign_add(1)
        if (step + 1) % BATCHES == 0:
            keeper.save()
            gate.saved(step + 1)
        gate.passed(step + 1)
    return model


def main() -> None:
    """Train with each mechanism."""
    tf.config.experimental.enable_op_determinism()
    directory, *mechanisms = sys.argv[1:]
    for mechanism in mechanisms:
        trainings = {"manager": manager, "model_checkpoint": model_checkpoint, "backup": backup}
        model = trainings[mechanism](f"{directory}/{mechanism}")
        loss = float(model.evaluate(POINTS, LABELS, verbose=0))
        learned = [variable.numpy() for variable in model.variables + model.optimizer.variables]
        gate.finish(mechanism, loss, learned)


if __name__ == "__main__":
    main()
