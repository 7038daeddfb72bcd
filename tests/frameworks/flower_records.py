# SPDX-License-Identifier: Apache-2.0
"""Writes TFRecord files of the flowers' form: ``flower_records.py DIRECTORY``; the photos are noise."""

from __future__ import annotations

import sys

import numpy as np
import tensorflow as tf


def example(random: np.random.Generator, number: int) -> bytes:
    """One photo of 40 x 40 with its class."""
    photo = tf.io.encode_jpeg(random.integers(0, 255, (40, 40, 3)).astype("uint8")).numpy()
    features = {
        "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[photo])),
        "class": tf.train.Feature(int64_list=tf.train.Int64List(value=[number % 5])),
    }
    content: bytes = tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
    return content


def main() -> None:
    """Write three files of eight photos."""
    random = np.random.default_rng(0)
    for file in range(3):
        with tf.io.TFRecordWriter(f"{sys.argv[1]}/flowers{file}.tfrec") as writer:
            for number in range(8):
                writer.write(example(random, number))


if __name__ == "__main__":
    main()
