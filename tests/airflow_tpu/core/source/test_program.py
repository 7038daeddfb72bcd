# SPDX-License-Identifier: Apache-2.0
"""What starts a script on the VM, and scripts that would fail there."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_tpu.core.source.program import program_of, script_faults

PYTHON = b"#!/usr/bin/env python3\n"


@pytest.mark.parametrize(
    ("name", "program"),
    [
        ("a.py", ("python3", "./a.py")),
        ("-rf.py", ("python3", "./-rf.py")),
        ("sub dir/it's.py", ("python3", "./sub dir/it's.py")),
        ("train.sh", ("bash", "-o", "pipefail", "./train.sh")),
        ("model.jl", ("julia", "./model.jl")),
        ("학습", ("./학습",)),
    ],
)
def test_the_interpreter_follows_from_the_name(name: str, program: tuple[str, ...]) -> None:
    """No name can be taken for an option, and a script of unknown kind runs by itself."""
    assert program_of(name) == program


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("nb.ipynb", b"{}", "is no notebook of format 4"),
        ("train.R", b"print(1)\n", "has no interpreter"),
        ("train", b"print(1)\n", "has no interpreter"),
        ("train.sh", b"set -e\r\npython3 a.py\r\n", "has Windows line ends"),
        ("train", PYTHON.replace(b"\n", b"\r\n"), "has Windows line ends"),
    ],
)
def test_what_cannot_run_is_said_before_a_tpu_is_asked_for(
    tmp_path: Path, name: str, content: bytes, problem: str
) -> None:
    """The fault names the script, and what to do."""
    (tmp_path / name).write_bytes(content)
    (fault,) = script_faults("script", tmp_path / name)
    assert (fault.field, fault.value) == ("script", name)
    assert fault.problem.startswith(problem)


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.py", b"x = 1\r\n"), ("b.sh", b"true\n"), ("c", PYTHON), ("d", b"\x7fELF\x02"), ("e.jl", b"")],
)
def test_what_runs_has_no_fault(tmp_path: Path, name: str, content: bytes) -> None:
    """Python reads Windows line ends, programs run by themselves, and scripts by their first line."""
    (tmp_path / name).write_bytes(content)
    assert script_faults("script", tmp_path / name) == []
