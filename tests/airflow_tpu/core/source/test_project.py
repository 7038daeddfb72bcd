# SPDX-License-Identifier: Apache-2.0
"""The folder that a script runs in, and how a script of a package is started."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from airflow_tpu.core.request.command import SHELL, WHOLE_LINE, command
from airflow_tpu.core.source.bundle import Bundle
from airflow_tpu.core.source.project import command_project, find_project
from airflow_tpu.core.source.selection import Source
from airflow_tpu.errors import ConfigError

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
    assert found.script is not None
    assert found.script.is_file()


@pytest.mark.parametrize("script", ["nothing.py", "-m pkg.nothing", "-m nothing"])
def test_a_script_that_is_not_there_is_named(tmp_path: Path, script: str) -> None:
    """The fault names the field and the path that was looked for."""
    source = Source(tree(tmp_path, {"pkg/__init__.py": ""}), script, tmp_path)
    with pytest.raises(ConfigError) as caught:
        Bundle.build(source)
    (fault,) = caught.value.faults
    assert (fault.field, fault.value) == ("script", script)
    assert str(tmp_path) in fault.problem


@pytest.mark.parametrize(
    ("line", "argv", "script"),
    [
        ("python train.py --lr 1", ("python3", "train.py", "--lr", "1"), "train.py"),
        ("python3 -u -W ignore train.py", ("python3", "-u", "-W", "ignore", "train.py"), "train.py"),
        ("python -m pkg.train", ("python3", "-m", "pkg.train"), "pkg/train.py"),
        ("python -m torch.distributed.run train.py", ("python3", "-m", "torch.distributed.run", "train.py"), None),
        ("bash run.sh", (*SHELL, "run.sh"), "run.sh"),
        ("./run.sh", ("./run.sh",), "run.sh"),
        ("torchrun --nproc 8 train.py", ("torchrun", "--nproc", "8", "train.py"), "train.py"),
        ("/usr/bin/env true", ("/usr/bin/env", "true"), None),
        ("python -c 'print(1)'", ("python3", "-c", "print(1)"), None),
        ("python train.py | tee log", (*WHOLE_LINE, "python train.py | tee log"), "train.py"),
    ],
)
def test_a_command_runs_at_the_top(tmp_path: Path, line: str, argv: tuple[str, ...], script: str | None) -> None:
    """The script that it starts is known where its words say so, so that it can be checked before."""
    top = tree(tmp_path, {"train.py": "", "run.sh": "", **PACKAGE})
    typed = command(line)
    assert typed is not None
    found = command_project(top, typed)
    assert (found.argv, found.folder) == (argv, "")
    assert found.script == (top / script if script else None)


@pytest.mark.parametrize(
    "line",
    [
        "python nothing.py",
        "python -m pkg.nothing",
        "bash nothing.sh",
        "./nothing.sh",
        "python nothing.py |& tee log",
        "cd pkg && python nothing.py",
        "cd nothing; python train.py",
        "pip install -e .\nexport A=1\nLR=1 python nothing.py > log 2>&1 &",
        "source nothing/bin/activate && python train.py",
    ],
)
def test_a_command_that_starts_nothing_is_named(tmp_path: Path, line: str) -> None:
    """What the command starts is looked for before a TPU is asked for."""
    source = Source(tree(tmp_path, PACKAGE), "", tmp_path / "home", command=command(line))
    with pytest.raises(ConfigError, match=r"command = .*nothing") as caught:
        Bundle.build(source)
    assert [fault.field for fault in caught.value.faults] == ["command"]


@pytest.mark.parametrize(
    "line",
    [
        "git clone $URL nothing && cd nothing && python nothing.py",
        "for i in 1 2; do python nothing.py; done",
        "python -m venv v && v/bin/python nothing.py",
        "cd $HOME && python nothing.py",
        "bash -c 'python nothing.py' | tee x",
        "(cd nothing; python nothing.py)",
        "cat <<EOF > nothing.py\nprint()\nEOF\npython nothing.py",
        "python plain.py; python nothing.py",
    ],
)
def test_what_an_earlier_command_may_make_is_not_missed(tmp_path: Path, line: str) -> None:
    """Only what nothing can have made before is looked for."""
    top = tree(tmp_path, {**PACKAGE, "plain.py": ""})
    Bundle.build(Source(top, "", tmp_path / "home", command=command(line)))


def test_a_script_that_is_a_program_says_what_runs_it(tmp_path: Path) -> None:
    """It needs no right on this machine, and one without a first line is refused."""
    top = tree(tmp_path / "top", {"train.py": "#!/usr/bin/env python3\n", "plain.py": "print()\n"})
    bundle = Bundle.build(Source(top, "", tmp_path, command=command("./train.py --lr 1")))
    with tarfile.open(fileobj=io.BytesIO(bundle.data)) as tar:
        assert {member.name: member.mode for member in tar} == {"plain.py": 0o644, "train.py": 0o755}
    with pytest.raises(ConfigError, match=r"python3 plain\.py"):
        Bundle.build(Source(top, "", tmp_path, command=command("./plain.py")))


def test_a_project_of_its_own_is_the_working_directory(tmp_path: Path) -> None:
    """Where only one project lies, a script in a folder of it runs at its top."""
    found = find_project(tree(tmp_path, {"scripts/train.py": ""}), "scripts/train.py", is_shared=False)
    assert (found.folder, found.argv) == ("", ("python3", "./scripts/train.py"))


def test_a_file_that_is_no_python_is_left_to_the_interpreter(tmp_path: Path) -> None:
    """A syntax error is no reason to refuse to look for the project."""
    top = tree(tmp_path, {"pkg/__init__.py": "", "pkg/train.py": "from .. import (\n"})
    assert find_project(top, "pkg/train.py").argv == ("python3", "./pkg/train.py")
