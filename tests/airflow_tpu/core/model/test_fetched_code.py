# SPDX-License-Identifier: Apache-2.0
"""A script that fetches code by itself runs what no digest of its own files shows."""

from __future__ import annotations

import io
import tarfile

import pytest

from airflow_tpu.core.model.fetched_code import fetching_files

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def archive(name: str, content: bytes) -> bytes:
    """A bundle of one file."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.sh", '#!/bin/bash\nset -e\ngit clone -q https://example.org/r.git && cd r && git checkout -q "$1"\n'),
        ("train.sh", "cd r; git  pull\n"),
        ("train.sh", "git -C r fetch origin\n"),
        ("start", "#!/bin/sh\ngit clone --depth 1 https://example.org/r.git\n"),
        ("train.py", "subprocess.run(['git', 'clone', url], check=True)\n"),
        ("train.py", 'os.system("git clone " + url)\n'),
        ("requirements.txt", "git+https://github.com/x/y@main\n"),
        ("train.sh", "pip install git+https://github.com/x/y\n"),
    ],
)
def test_code_that_is_fetched_is_found(name: str, text: str) -> None:
    """A clone, a pull and a package from a repository are found in scripts and requirements."""
    assert fetching_files(archive(name, text.encode())) == [name]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.sh", "# git clone would be slow\npython3 train.py\n"),
        ("train.py", "digit = 1\nlegit clone\n"),
        ("README.md", "git clone https://example.org/r.git\n"),
        ("requirements.txt", f"git+https://github.com/x/y@{COMMIT}\nnumpy==2.0\n"),
    ],
)
def test_other_files_are_no_reason(name: str, text: str) -> None:
    """Comments, documentation and a package at a commit fetch nothing that may change."""
    assert fetching_files(archive(name, text.encode())) == []


def test_data_is_not_read_as_code() -> None:
    """Bytes that are no text, and a file too long for a script, are passed over."""
    assert fetching_files(archive("weights", b"\xff\xfegit" * 10)) == []
    assert fetching_files(archive("long.py", b"git clone x\n" * 100_000)) == []
