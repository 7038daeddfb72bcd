# SPDX-License-Identifier: Apache-2.0
"""Which flower a photo shows: a network that knows photos already learns it, from TFRecords in a bucket.

::

    python train.py --data 'gs://my-bucket/flowers/*.tfrec' --base Xception --weights imagenet

First only the new last layer learns, then the whole network, slowly. The same code runs on TPU, GPU and CPU. Each epoch
ends with a file that holds everything; killed at any instant the training continues after the last one, and ends with
the same model, because the order of the photos depends only on the seed and the epoch.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

OUTPUT = Path(os.environ.get("TRC_OUTPUT_DIR", "output"))
CHECKPOINTS = Path(os.environ.get("TRC_CHECKPOINT_DIR", "checkpoints"))
CLASSES = ("daisy", "dandelion", "roses", "sunflowers", "tulips")


def choose_strategy() -> Any:
    """Return the strategy for the promised accelerator; end with 69 if it is not there."""
    if os.environ.get("TRC_ACCEL") == "tpu":
        try:
            resolver = tf.distribute.cluster_resolver.TPUClusterResolver("local")
            tf.tpu.experimental.initialize_tpu_system(resolver)
            return tf.distribute.TPUStrategy(resolver)
        except (tf.errors.OpError, ValueError) as error:
            print(f"the TPU did not initialise: {error}", file=sys.stderr)
            sys.exit(69)
    return tf.distribute.MirroredStrategy() if tf.config.list_physical_devices("GPU") else tf.distribute.get_strategy()


def photos(files: list[str], options: argparse.Namespace, epoch: int | None = None) -> Any:
    """Return the photos of some files in batches, in the order of an epoch; None for the order of the files."""

    def decode(record: Any) -> tuple[Any, Any]:
        kinds = {"image": tf.io.FixedLenFeature([], tf.string), "class": tf.io.FixedLenFeature([], tf.int64)}
        found = tf.io.parse_single_example(record, kinds)
        photo = tf.image.resize(tf.io.decode_jpeg(found["image"], channels=3), (options.size, options.size))
        return photo, found["class"]

    if epoch is None:
        records = tf.data.TFRecordDataset(files)
    else:
        random = np.random.default_rng((options.seed, epoch))
        records = tf.data.TFRecordDataset(random.permutation(files), num_parallel_reads=4)
        records = records.shuffle(2048, seed=int(random.integers(2**31)))
    batches = records.map(decode, tf.data.AUTOTUNE).batch(
        options.batch, drop_remainder=True
    )  # a TPU needs equal shapes
    return batches.prefetch(tf.data.AUTOTUNE)


def build_model(options: argparse.Namespace) -> Any:
    """Return the network that knows photos, with a last layer that knows nothing of flowers yet."""
    shape = (options.size, options.size, 3)
    known = options.weights if options.weights == "imagenet" else None
    base = getattr(keras.applications, options.base)(include_top=False, weights=known, input_shape=shape, pooling="avg")
    if options.weights.startswith("gs://"):
        base.load_weights(options.weights)
    photo = keras.Input(shape)
    features = base(keras.layers.Rescaling(1 / 127.5, offset=-1)(photo), training=False)
    return keras.Model(photo, keras.layers.Dense(len(CLASSES), dtype="float32")(features))


def prepare(model: Any, whole: bool) -> None:
    """Let the last layer learn, or the whole network, slowly."""
    model.layers[-2].trainable = whole
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-5 if whole else 1e-3), loss, metrics=["accuracy"])


def train(options: argparse.Namespace, files: list[str]) -> Any:
    """Train from the newest checkpoint to the last epoch; return the model."""
    saved = sorted(CHECKPOINTS.glob("[0-9]*.keras"))
    done = int(saved[-1].stem) if saved else 0
    with choose_strategy().scope():
        model = keras.models.load_model(saved[-1]) if saved else build_model(options)
        print(f"training on {len(files)} files, from epoch {done} of {options.epochs}", flush=True)
        for epoch in range(done, options.epochs):
            if epoch in (0, options.frozen_epochs):
                prepare(model, whole=epoch == options.frozen_epochs)
            history = model.fit(photos(files, options, epoch), verbose=0).history
            print(
                f"epoch {epoch + 1}: loss {history['loss'][0]:.4f}, accuracy {history['accuracy'][0]:.4f}", flush=True
            )
            save(model, CHECKPOINTS / f"{epoch + 1:04d}.keras")
            write_json("progress", step=epoch + 1, total_steps=options.epochs)
            for old in sorted(CHECKPOINTS.glob("[0-9]*.keras"))[:-2]:
                old.unlink()
    return model


def save(model: Any, path: Path) -> None:
    """Write model and optimizer below a name that nothing reads, then rename: a kill leaves no half file."""
    hidden = path.with_name(f".{path.name}")
    model.save(hidden)
    hidden.replace(path)


def write_json(name: str, **document: Any) -> None:
    """Replace a file of the output as a whole."""
    fresh = OUTPUT / f"{name}.json.tmp"
    fresh.write_text(json.dumps(document))
    fresh.replace(OUTPUT / f"{name}.json")


def main() -> None:
    """Train, measure on every fifth file, which the training never sees, and export."""
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument(
        "--data", default=os.environ.get("TRC_DATA_URI"), help="pattern of TFRecord files, gs:// or local"
    )
    parser.add_argument(
        "--base", default="Xception", help="a network of keras.applications that takes pixels from -1 to 1"
    )
    parser.add_argument("--weights", default="imagenet", help="of the base: imagenet, none, or gs://....weights.h5")
    parser.add_argument("--size", type=int, default=224, help="width and height of a photo, pixels")
    parser.add_argument("--batch", type=int, default=128, help="photos of a step, over all replicas")
    parser.add_argument("--epochs", type=int, default=15, help="in all")
    parser.add_argument("--frozen-epochs", type=int, default=5, help="of them, for the last layer alone")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("TRC_SEED") or 0), help="of everything random")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(76))  # stopped; what follows the last epoch is lost
    keras.utils.set_random_seed(options.seed)
    files = sorted(tf.io.gfile.glob(options.data))
    if len(files) < 2:
        sys.exit(f"{options.data}: {len(files)} file(s) found, at least two are needed")
    for folder in (OUTPUT, CHECKPOINTS):
        folder.mkdir(parents=True, exist_ok=True)
    model = train(options, [file for number, file in enumerate(files) if number % 5])
    loss, accuracy = model.evaluate(photos(files[::5], options), verbose=0)
    model.export(OUTPUT / "saved_model", verbose=False)
    write_json("metrics", loss=loss, accuracy=accuracy)


if __name__ == "__main__":
    main()
