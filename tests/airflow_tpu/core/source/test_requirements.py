# SPDX-License-Identifier: Apache-2.0
"""Requirements files as pip reads them, before pip does."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_tpu.core.source.requirements import requirement_faults


def faults(top: Path, text: str, **others: str) -> list[str]:
    """What is said of a requirements file."""
    (top / "requirements.txt").write_text(text, encoding="utf-8")
    for name, content in others.items():
        (top / f"{name}.txt").write_text(content, encoding="utf-8")
    return [f"{fault.value}: {fault.problem}" for fault in requirement_faults(top / "requirements.txt")]


@pytest.mark.parametrize(
    "line",
    [
        "jax[tpu]==0.4.30",
        'tensorflow-tpu >= 2.18, < 2.19 ; python_version >= "3.10"  # the last with 3.10',
        "-f https://storage.googleapis.com/libtpu-releases/index.html",
        "git+https://github.com/google/flax",
        "flax @ git+https://github.com/google/flax@main",
        "./wheels/mine-1.0-py3-none-any.whl",
        "mine.whl",
        "numpy==1.26.4 --hash=sha256:0123",
        "numpy==1.26.4 \\\n    --hash=sha256:0123",
        "private==${VERSION}",
        "",
    ],
)
def test_line_that_pip_reads(tmp_path: Path, line: str) -> None:
    """Every form that pip's documentation names passes."""
    assert faults(tmp_path, f"{line}\n") == []


@pytest.mark.parametrize("line", ["numpy =< 2", "torch==", "import numpy", "numpy 1.26"])
def test_line_that_pip_refuses(tmp_path: Path, line: str) -> None:
    """The file, the line as it stands, and what is expected in its place."""
    (found,) = faults(tmp_path, f"scipy\n{line}\n")
    assert found.startswith(f"requirements.txt: {line}: is no requirement that pip reads: ")


def test_included_file_is_read_as_well(tmp_path: Path) -> None:
    """The line that is wrong may be in a file that is included."""
    (found,) = faults(tmp_path, "-r base.txt\n", base="keras >> 3\n")
    assert found.startswith("base.txt: keras >> 3: ")


@pytest.mark.parametrize(
    ("name", "words"), [("setup.py", "'.'"), ("environment.yml", "conda"), ("poetry.lock", "export")]
)
def test_a_file_of_another_kind_is_named(tmp_path: Path, name: str, words: str) -> None:
    """One fault says what to do, and not every line that pip cannot read."""
    (tmp_path / name).write_text("name: x\ndependencies:\n")
    (found,) = requirement_faults(tmp_path / name)
    assert words in found.problem
    assert found.allowed == ("requirements.txt", "pyproject.toml", "uv.lock")
