"""The folder that a script runs in, and how a script of a package is started."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from airflow_tpu.core.source.project import find_project, missing

RELATIVE = "from .models import net\n"


PACKAGE = {"pkg/__init__.py": "", "pkg/train.py": RELATIVE, "pkg/plain.py": "", "pkg/__main__.py": ""}


def tree(top: Path, files: Mapping[str, str]) -> Path:
    """A tree with these files."""
    for name, content in files.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return top


@pytest.mark.parametrize(
    ("script", "folder", "program"),
    [
        ("hello.py", "", ("python3", "./hello.py")),
        ("repo/train.py", "repo", ("python3", "./train.py")),
        ("repo/scripts/train.py", "repo", ("python3", "./scripts/train.py")),
        ("repo/pkg/train.py", "repo", ("python3", "-m", "pkg.train")),
        ("pkg/train.py", "", ("python3", "-m", "pkg.train")),
        ("pkg/plain.py", "", ("python3", "./pkg/plain.py")),
        ("-m pkg.train", "", ("python3", "-m", "pkg.train")),
        ("-m pkg", "", ("python3", "-m", "pkg")),
    ],
)
def test_a_script_runs_at_the_root_of_its_project(
    tmp_path: Path, script: str, folder: str, program: tuple[str, ...]
) -> None:
    """A folder below the top is a project; what imports from its own package is started as a module."""
    inner = {f"repo/{name}": content for name, content in PACKAGE.items()}
    top = tree(tmp_path, {"hello.py": "", "repo/train.py": "", "repo/scripts/train.py": "", **PACKAGE, **inner})
    found = find_project(top, script)
    assert (found.folder, found.argv) == (folder, program)
    assert found.script.is_file()


@pytest.mark.parametrize("script", ["nothing.py", "-m pkg.nothing", "-m nothing"])
def test_a_script_that_is_not_there_is_named(tmp_path: Path, script: str) -> None:
    """The fault names the field and the path that was looked for."""
    with pytest.raises(FileNotFoundError) as caught:
        find_project(tree(tmp_path, {"pkg/__init__.py": ""}), script)
    fault = missing(caught.value, script)
    assert (fault.field, fault.value) == ("script", script)
    assert str(tmp_path) in fault.problem


def test_a_file_that_is_no_python_is_left_to_the_interpreter(tmp_path: Path) -> None:
    """A syntax error is no reason to refuse to look for the project."""
    top = tree(tmp_path, {"pkg/__init__.py": "", "pkg/train.py": "from .. import (\n"})
    assert find_project(top, "pkg/train.py").argv == ("python3", "./pkg/train.py")
