# SPDX-License-Identifier: Apache-2.0
"""Which files of a shared folder travel with one of its scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_tpu.core.request.command import command
from airflow_tpu.core.source.project import command_project, find_project
from airflow_tpu.core.source.selection import Source, selected_files

FILES = {
    "hello.py": "print('hello')\n",
    "digits.py": "import helper\nfrom digits_parts import main\n",
    "helper.py": "import yaml\nopen('settings/base.yaml')\n",
    "digits_parts/__init__.py": "",
    "digits_parts/main.py": "from trc import contract\n",
    "settings/base.yaml": "vocabulary: words.txt\n",
    "words.txt": "a b c\n",
    "run.sh": "python3 -m other.train\n",
    "broken.py": "import (\n",
    "other/train.py": "",
    "other/data.bin": "0" * 5000,
    "other/.git/config": "",
    "trc/contract.py": "",
    "reqs/vm.txt": "-r base.txt  # more\n./wheels/x.whl\n",
    "reqs/base.txt": "toolz\n",
    "reqs/wheels/x.whl": "wheel",
}
LIBRARY = {"trc/contract.py"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with several projects."""
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    return tmp_path


def travelling(source: Source) -> set[str]:
    """Paths in the archive."""
    return set(selected_files(source, find_project(source.top, source.script)))


@pytest.mark.parametrize(
    ("script", "arguments", "files"),
    [
        ("hello.py", (), {"hello.py"}),
        ("hello.py", ("--config=settings/base.yaml",), {"hello.py", "settings/base.yaml", "words.txt"}),
        (
            "digits.py",
            (),
            {
                "digits.py",
                "helper.py",
                "digits_parts/__init__.py",
                "digits_parts/main.py",
                "settings/base.yaml",
                "words.txt",
            },
        ),
        ("run.sh", (), {"run.sh", "other/train.py", "other/data.bin"}),
        ("broken.py", (), {"broken.py"}),
        ("other/train.py", (), {"other/train.py", "other/data.bin"}),
        ("-m digits_parts.main", (), {"digits_parts/__init__.py", "digits_parts/main.py"}),
    ],
)
def test_a_project_travels_without_its_neighbours(
    home: Path, script: str, arguments: tuple[str, ...], files: set[str]
) -> None:
    """A folder travels as a whole; a script beside the folders takes along what it, or what that again, names."""
    assert travelling(Source(home, script, home, arguments)) == files | LIBRARY


def test_a_command_takes_along_what_it_names(home: Path) -> None:
    """A command beside several projects is no reason to send all of them."""
    source = Source(home, "", home, command=command("python3 hello.py --config=settings/base.yaml | tee log"))
    assert source.command is not None
    found = set(selected_files(source, command_project(home, source.command)))
    assert found == {"hello.py", "settings/base.yaml", "words.txt"} | LIBRARY


def test_requirements_of_the_project_come_first(home: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A file of that name in the project counts before one of the common folder."""
    top = tmp_path_factory.mktemp("project")
    (top / "reqs").mkdir()
    (top / "reqs" / "vm.txt").write_text("flax\n")
    (top / "a.py").touch()
    found = selected_files(
        source := Source(top, "a.py", home, requirements="reqs/vm.txt"), find_project(top, "a.py", source.is_shared)
    )
    assert found["reqs/vm.txt"] == top / "reqs" / "vm.txt"
    assert "reqs/base.txt" not in found


def test_a_source_of_its_own_travels_as_a_whole(home: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where only one project lies nothing is left out, and it gets the library too."""
    top = tmp_path_factory.mktemp("source")
    (top / "a.py").touch()
    (top / "notes.md").touch()
    assert travelling(Source(top, "a.py", home)) == {"a.py", "notes.md"} | LIBRARY


def test_requirements_travel_with_what_they_include(home: Path) -> None:
    """Included files and wheels keep their places, so that the references hold."""
    found = travelling(Source(home, "hello.py", home, requirements="reqs/vm.txt"))
    assert found == {"hello.py", "reqs/vm.txt", "reqs/base.txt", "reqs/wheels/x.whl"} | LIBRARY


def test_links_do_not_lead_out(home: Path) -> None:
    """A link in a project is not followed, nor a requirement outside of the folder."""
    (home / "other" / "link.py").symlink_to("/etc/passwd")
    (home / "reqs" / "base.txt").write_text("-r ../../../etc/passwd\n-r /etc/passwd\n")
    assert travelling(Source(home, "other/train.py", home, requirements="reqs/base.txt")) == (
        {"other/train.py", "other/data.bin", "reqs/base.txt"} | LIBRARY
    )
