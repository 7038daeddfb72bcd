# SPDX-License-Identifier: Apache-2.0
"""The Keras model, and a dropout that needs no saved state.

Keras keeps the random state of its own Dropout in a variable that neither ``tf.train.Checkpoint(model=...)`` nor a
weights file contains (keras-team/keras#19796), so a resumed run draws other masks than an undisturbed one; and on
several replicas every one of them drops the same units.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from digits_parts.data import CLASSES, GREY_LEVELS, SIDE


def step_dropout(features: Any, rate: float, key: tuple[int, Any], rows: Any, batch_size: int) -> Any:
    """Drop units by a mask that is a pure function of the seed, the step and the place in the global batch.

    Every replica draws the mask of the global batch and takes its own rows, so the number of replicas changes
    nothing and a run may be resumed on another number.

    :param features: (local batch, units).
    :param key: seed and step.
    :param rows: place of each local example in the global batch.
    :param batch_size: of the global batch.
    """
    if rate == 0:
        return features
    seed, step = key
    shape = [batch_size, features.shape[-1]]
    noise = tf.random.stateless_uniform(shape, seed=tf.stack([tf.constant(seed, tf.int32), tf.cast(step, tf.int32)]))
    keep = tf.gather(tf.cast(noise >= rate, features.dtype), rows)
    return features * keep / (1 - rate)


class DigitsModel(keras.Model):  # type: ignore[misc]  # Keras ships no types
    """Two convolutions and two dense layers, 38,282 parameters.

    :param seed: of the dropout; that of the initial weights is Keras' global one.
    :param dropout: share of units dropped before the dense layers while training.
    :param batch_size: of the global batch.
    """

    def __init__(self, seed: int, dropout: float, batch_size: int) -> None:
        super().__init__(name="digits")
        self._key = seed
        self._dropout = dropout
        self._batch_size = batch_size
        layers = keras.layers
        self.features = keras.Sequential(
            [
                layers.Input((SIDE, SIDE, 1)),
                layers.Conv2D(16, 3, padding="same", activation="relu"),
                layers.Conv2D(32, 3, padding="same", activation="relu"),
                layers.MaxPooling2D(),
                layers.Flatten(),
            ],
            name="features",
        )
        self.head = keras.Sequential(
            [
                layers.Input((self.features.output_shape[-1],)),
                layers.Dense(64, activation="relu"),
                layers.Dense(CLASSES),
            ],
            name="head",
        )
        self.built = True

    def call(self, images: Any) -> Any:
        """Logits of raw images (0 to 16)."""
        return self.head(self.features(tf.cast(images, tf.float32) / GREY_LEVELS))

    def training_logits(self, images: Any, rows: Any, step: Any) -> Any:
        """Logits with dropout, for one step of training."""
        features = self.features(tf.cast(images, tf.float32) / GREY_LEVELS)
        return self.head(step_dropout(features, self._dropout, (self._key, step), rows, self._batch_size))


def optimizer(learning_rate: float, steps: int) -> Any:
    """AdamW with a cosine schedule: the rate is a function of the optimizer's own step counter, so it resumes too.

    The schedule goes to the constructor: assigned afterwards, it makes the optimizer impossible to checkpoint.
    """
    schedule = keras.optimizers.schedules.CosineDecay(learning_rate, steps)
    return keras.optimizers.AdamW(schedule, weight_decay=1e-3)
