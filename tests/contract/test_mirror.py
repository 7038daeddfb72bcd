# SPDX-License-Identifier: Apache-2.0
"""The place of a test says what it tests, and no folder holds more files than one can take in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MIRRORS = {
    "tests/airflow_tpu": "plugins/airflow_tpu",
    "tests/localcloud": "localcloud",
    "tests/remote": "include/remote",
    "tests/scripts": "scripts",
    "tests/train": "include/train",
}
"""Trees of tests, each with the tree it mirrors. What crosses modules lies in the other trees of tests."""

SIZES = {"plugins": 14, "include": 14, "localcloud": 14, "scripts": 14, "dags": 14, "benchmarks": 14, "tests": 24}
"""Python modules of one folder at most, by the tree; a module of tests is found by the name of what it tests."""


def misplaced(tests: Path, sources: Path) -> Iterator[str]:
    """Test files whose name begins with no file of the mirrored folder, nor with the folder's own name."""
    for path in sorted(tests.rglob("test_*.py")):
        folder = sources / path.parent.relative_to(tests)
        files = [file for file in folder.iterdir() if file.is_file()] if folder.is_dir() else []
        names = [folder.name, *(file.stem.lower().replace("-", "_") for file in files)]
        if not any(f"{path.stem}_".startswith(f"test_{name}_") for name in names):
            yield str(path.relative_to(tests))


@pytest.mark.parametrize(("tests", "sources"), MIRRORS.items(), ids=MIRRORS)
def test_a_test_lies_where_its_module_does(tests: str, sources: str) -> None:
    """A test file is called ``test_<module>.py`` or ``test_<module>_<aspect>.py``, in the folder of its module."""
    assert list(misplaced(ROOT / tests, ROOT / sources)) == []


def test_a_misplaced_test_is_noticed(tmp_path: Path) -> None:
    """A test of a module that lies in another folder, or has another name by now, is named."""
    for name in ("source/a/stop.py", "tests/a/test_stop.py", "tests/a/test_stop_late.py", "tests/a/test_stopped.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert list(misplaced(tmp_path / "tests", tmp_path / "source")) == ["a/test_stopped.py"]


@pytest.mark.parametrize("tree", SIZES)
def test_no_folder_is_crowded(tree: str) -> None:
    """A folder has as many modules as one sees at a glance; a bigger one is divided by what its modules know."""
    sizes = {folder: len(list(folder.glob("*.py"))) for folder in (ROOT / tree).rglob("*/")}
    sizes[ROOT / tree] = len(list((ROOT / tree).glob("*.py")))
    assert {str(folder.relative_to(ROOT)): size for folder, size in sizes.items() if size > SIZES[tree]} == {}
