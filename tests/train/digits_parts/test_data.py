# SPDX-License-Identifier: Apache-2.0
"""The data set: where it comes from, how it is split, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digits_parts import data
from tests.train.script_run import SCRIPTS
from trc.contract import EXIT_BAD_CONFIG, EXIT_BAD_DATA, ContractExit


@pytest.fixture(scope="module")
def digits() -> data.Digits:
    return data.load("")


def save(directory: Path, **arrays: Any) -> str:
    np.savez(directory / "digits.npz", **arrays)
    return str(directory / "digits.npz")


def everything(digits: data.Digits) -> tuple[Any, Any]:
    """All images and labels, as a file would hold them."""
    images, labels = data.read_csv(data.packaged_csv())
    assert len(labels) == len(digits.train) + len(digits.validation) + len(digits.test)
    return images, labels


def test_the_packaged_data_set_is_split_into_three_parts_without_overlap(digits: data.Digits) -> None:
    """All 1,797 digits are there; every class is in every part; hardly two images are the same."""
    parts = (digits.train, digits.validation, digits.test)
    assert [len(part) for part in parts] == [1257, 180, 360]
    assert [sorted(set(part.labels.tolist())) for part in parts] == [list(range(10))] * 3
    images = np.concatenate([part.images for part in parts]).reshape(1797, -1)
    assert len(np.unique(images, axis=0)) == 1797
    assert images.dtype == np.uint8
    assert (int(images.min()), int(images.max())) == (0, 16)


def test_the_split_and_the_digest_never_change(digits: data.Digits) -> None:
    """Accuracies of different releases are comparable, and old checkpoints stay valid."""
    assert digits.digest == "fe61bc84cd6a594d5ed1b937b7d8f8f791d4091d2a9df91fe5d6066156a4db6e"
    assert digits.test.labels[:12].tolist() == [7, 9, 4, 7, 0, 2, 6, 1, 3, 1, 3, 7]


def test_scikit_learn_is_not_imported_for_its_data() -> None:
    """Importing it costs seconds; the file in its wheel is read directly."""
    code = "from digits_parts import data; data.load(''); import sys; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=SCRIPTS, check=False).returncode == 0


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_local_file_gives_the_same_data_set(tmp_path: Path, digits: data.Digits, scheme: str) -> None:
    """A copy in .npz form has the same digest and the same split."""
    images, labels = everything(digits)
    loaded = data.load(scheme + save(tmp_path, images=images.reshape(-1, 8, 8), labels=labels))
    assert loaded.digest == digits.digest
    np.testing.assert_array_equal(loaded.test.images, digits.test.images)


@pytest.mark.parametrize("uri", ["https://host/digits.npz", "https://example.org/digits.npz", "digits.csv"])
def test_what_is_no_local_npz_file_is_refused(uri: str) -> None:
    """The pipeline fetches data; the script ends with 64 and repeats the value."""
    with pytest.raises(ContractExit, match=uri) as refused:
        data.load(uri)
    assert refused.value.code == EXIT_BAD_CONFIG


BAD_CONTENT = {
    "no labels": {"images": np.zeros((200, 8, 8))},
    "another size": {"images": np.zeros((200, 28, 28)), "labels": np.zeros(200)},
    "too few labels": {"images": np.zeros((200, 8, 8)), "labels": np.zeros(199)},
    "too few images": {"images": np.zeros((99, 8, 8)), "labels": np.zeros(99)},
    "pixels of 256 levels": {"images": np.full((200, 8, 8), 255), "labels": np.zeros(200)},
    "negative pixels": {"images": np.full((200, 8, 8), -1), "labels": np.zeros(200)},
    "pixels that are no number": {"images": np.full((200, 8, 8), np.nan), "labels": np.zeros(200)},
    "pixels from 0 to 1": {"images": np.full((200, 8, 8), 0.5), "labels": np.zeros(200)},
    "text": {"images": np.full((200, 8, 8), "x"), "labels": np.zeros(200)},
    "an eleventh class": {"images": np.zeros((200, 8, 8)), "labels": np.full(200, 10)},
    "objects": {"images": np.array([{}] * 200), "labels": np.zeros(200)},
}


@pytest.mark.parametrize("arrays", BAD_CONTENT.values(), ids=BAD_CONTENT)
def test_a_file_with_other_content_is_refused(tmp_path: Path, arrays: dict[str, Any]) -> None:
    """The script ends with 65 instead of training on nonsense."""
    with pytest.raises(ContractExit) as refused:
        data.load(save(tmp_path, **arrays))
    assert refused.value.code == EXIT_BAD_DATA


@pytest.mark.parametrize("content", [None, b"", b"not an archive", b"PK\x03\x04 cut"])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes | None) -> None:
    """A missing, empty or foreign file ends with 65 and is named."""
    path = tmp_path / "digits.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ContractExit, match=r"digits\.npz") as refused:
        data.load(str(path))
    assert refused.value.code == EXIT_BAD_DATA


def test_a_missing_package_is_named_together_with_the_way_out() -> None:
    """Without scikit-learn the script ends with 64 and says what to do."""
    with pytest.raises(ContractExit, match="TRC_DATA_URI") as refused:
        data.packaged_csv("a_package_that_is_not_installed")
    assert refused.value.code == EXIT_BAD_CONFIG
