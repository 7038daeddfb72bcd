# SPDX-License-Identifier: Apache-2.0
"""The data set: 1,797 handwritten digits, 8 x 8 pixels of 16 grey levels, and the order in which they are seen.

They ship inside the scikit-learn wheel (UCI "Optical Recognition of Handwritten Digits", CC BY 4.0), so nothing is
downloaded. Only the file is read: importing scikit-learn would cost seconds.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
from numpy.typing import NDArray

from trc.contract import EXIT_BAD_CONFIG, EXIT_BAD_DATA, ContractExit
from trc.storage import fetch

GREY_LEVELS = 16.0
SIDE = 8
CLASSES = 10
_CSV = Path("datasets", "data", "digits.csv.gz")


@dataclass(frozen=True)
class Split:
    """Some of the examples.

    :param images: uint8, (n, 8, 8, 1), 0 to 16.
    :param labels: int32, (n,), 0 to 9.
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Digits:
    """The whole data set in three parts, and the digest of its content."""

    train: Split
    validation: Split
    test: Split
    digest: str


def load(uri: str) -> Digits:
    """Read an ``.npz`` file, local or in a bucket, or the data inside scikit-learn if the URI is empty, and split it.

    :raises ContractExit: 64 for a URI of another kind, 65 if the content is not such a data set, 74 if the bucket does
        not answer.
    """
    images, labels = _read(uri) if uri else read_csv(packaged_csv())
    images = images.reshape(len(images), -1)
    if images.shape != (len(labels), SIDE * SIDE) or len(labels) < 100:
        raise ContractExit(
            EXIT_BAD_DATA,
            f"expected at least 100 images of 8 x 8 with a label each, got {images.shape}, {labels.shape}",
        )
    if not (_is_whole(images, GREY_LEVELS) and _is_whole(labels, CLASSES - 1)):
        raise ContractExit(EXIT_BAD_DATA, "expected pixels from 0 to 16 and labels from 0 to 9, all whole numbers")
    return _split(images.astype(np.uint8).reshape(-1, SIDE, SIDE, 1), labels.astype(np.int32))


def _is_whole(values: NDArray[Any], highest: float) -> bool:
    """Whether all values are whole numbers from 0 on; NaN fails every comparison. Pixels of 0 to 1 would become 0."""
    if not np.issubdtype(values.dtype, np.number):
        return False
    return bool(((values >= 0) & (values <= highest) & (values == np.floor(values))).all())


def _split(images: NDArray[np.uint8], labels: NDArray[np.int32]) -> Digits:
    """70 % to train on, 10 % to watch, 20 % to test with.

    The same for every seed, so that runs can be compared. RandomState is NumPy's frozen generator: its stream does
    not change with the version, as that of default_rng may.
    """
    order = np.random.RandomState(0).permutation(len(labels))
    parts = np.split(order, [len(order) * 7 // 10, len(order) * 8 // 10])
    train, validation, test = (Split(images[part], labels[part]) for part in parts)
    digest = hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest()
    return Digits(train, validation, test, digest)


def _read(uri: str) -> tuple[NDArray[Any], NDArray[Any]]:
    if not uri.startswith("gs://"):
        return _read_npz(_local_path(uri))
    with tempfile.TemporaryDirectory(prefix="digits-") as folder:
        files = [path for path in fetch(uri, Path(folder)) if path.suffix == ".npz"]
        if len(files) != 1:
            raise ContractExit(EXIT_BAD_DATA, f"TRC_DATA_URI is {uri!r}; expected one .npz there, not {len(files)}")
        return _read_npz(files[0])


def _local_path(uri: str) -> Path:
    parts = urlsplit(uri)
    path = Path(unquote(parts.path)) if parts.scheme == "file" else Path(uri)
    if parts.scheme not in ("", "file") or path.suffix != ".npz":
        raise ContractExit(
            EXIT_BAD_CONFIG,
            f"TRC_DATA_URI is {uri!r}; this script reads an .npz file, local or gs://, with images and labels",
        )
    return path


def _read_npz(path: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return arrays["images"], arrays["labels"]
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ContractExit(EXIT_BAD_DATA, f"cannot read images and labels from {path}: {error}") from error


def packaged_csv(package: str = "sklearn") -> Path:
    """The data file inside the installed scikit-learn.

    :raises ContractExit: 64 if it is not installed.
    """
    spec = importlib.util.find_spec(package)  # finds the package without running it
    for place in (spec.submodule_search_locations or []) if spec else []:
        if (Path(place) / _CSV).is_file():
            return Path(place) / _CSV
    raise ContractExit(
        EXIT_BAD_CONFIG, "the data set ships with scikit-learn, which is not installed; install it or set TRC_DATA_URI"
    )


def read_csv(path: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    """Images, one flat row each, and labels, as scikit-learn keeps them."""
    with gzip.open(path, "rt", encoding="ascii") as file:
        table = np.loadtxt(file, delimiter=",")
    return table[:, :-1], table[:, -1]


def stream(tf: Any, split: Split, batch_size: int, seed: int, steps: tuple[int, int]) -> Any:
    """Batches from one step to another as a pure function of the seed and the step: nothing needs to be saved.

    Every epoch visits every example once, in an order of its own. An element is (images, labels, rows), where a row
    is the place of the example in the global batch, whichever replica it lands on.

    :param tf: the TensorFlow module.
    :param steps: first step and the one after the last.
    """
    images, labels = tf.constant(split.images), tf.constant(split.labels)
    count = len(split)

    def batch(step: Any) -> tuple[Any, Any, Any]:
        rows = tf.range(batch_size, dtype=tf.int64)
        position = step * batch_size + rows
        constant = tf.fill([batch_size], tf.constant(seed, tf.int64))
        # The raw op, because tf.random.experimental.index_shuffle of 2.20 and 2.21 pads a batch of seeds the wrong way.
        chosen = tf.raw_ops.RandomIndexShuffle(
            index=position % count,
            seed=tf.stack([tf.zeros_like(rows), constant, position // count], axis=1),
            max_index=tf.constant(count - 1, tf.int64),
        )
        chosen = tf.ensure_shape(chosen, [batch_size])
        return tf.gather(images, chosen), tf.gather(labels, chosen), tf.cast(rows, tf.int32)

    return tf.data.Dataset.range(*steps).map(batch).prefetch(4)
