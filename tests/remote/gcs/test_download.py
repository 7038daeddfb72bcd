# SPDX-License-Identifier: Apache-2.0
"""A file in pieces is hashed while they arrive, in whatever order and from however many threads."""

from __future__ import annotations

import base64
import hashlib
import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gcs.download import TargetFile
from gcs.source import CHUNK_BYTES


@pytest.mark.parametrize("seed", range(3))
def test_pieces_may_come_in_any_order(tmp_path: Path, seed: int) -> None:
    """The file is whole, its checksum right, and exactly one piece was the last."""
    content = os.urandom(5 * CHUNK_BYTES + 7)
    target = TargetFile(tmp_path / "deep" / "file", len(content))
    pieces = list(target.pieces)
    random.Random(seed).shuffle(pieces)
    with ThreadPoolExecutor(4) as pool:
        last = list(pool.map(lambda first: target.write(first, content[first : first + CHUNK_BYTES]), pieces))
    assert target.md5 == base64.b64encode(hashlib.md5(content).digest()).decode()
    target.close()
    assert (tmp_path / "deep" / "file").read_bytes() == content
    assert last.count(True) == 1


def test_an_empty_file_is_made_without_a_piece(tmp_path: Path) -> None:
    """An object without content is a file without content."""
    target = TargetFile(tmp_path / "file", 0)
    assert list(target.pieces) == []
    assert (tmp_path / "file").read_bytes() == b""


def test_a_file_is_open_only_while_pieces_arrive(tmp_path: Path) -> None:
    """A checkpoint of more files than a process may open can be restored."""
    before = len(os.listdir("/proc/self/fd"))
    targets = [TargetFile(tmp_path / f"{number}", 1) for number in range(50)]
    for target in targets:
        assert target.write(0, b"x")
        target.close()
    assert len(os.listdir("/proc/self/fd")) == before
