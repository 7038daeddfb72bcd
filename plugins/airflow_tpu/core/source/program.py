# SPDX-License-Identifier: Apache-2.0
"""What starts a script on the TPU VM, and faults of a script that are known before a TPU is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from airflow_tpu.core.request.command import SHELL
from airflow_tpu.core.source.notebook import notebook_problems
from airflow_tpu.errors import Fault

_FIRST_BYTES = 4096
INTERPRETERS: Mapping[str, tuple[str, ...]] = {
    ".py": ("python3",),
    ".sh": SHELL,
    ".jl": ("julia",),
    ".ipynb": ("python3", "-m", "trc.notebook"),
}


def program_of(script: str) -> tuple[str, ...]:
    """Return what runs a script from the folder that its path is relative to; one of unknown kind runs by itself.

    The path starts with ``./``, so that a name like ``-rf.py`` is not taken for an option.
    """
    return (*INTERPRETERS.get(PurePosixPath(script).suffix.lower(), ()), f"./{script}")


def script_faults(field: str, path: Path) -> list[Fault]:
    """Return what is known to fail on the VM.

    :param field: of the form, that names the script.
    :param path: of the script, on this machine.
    """
    return [Fault(field, path.name, problem) for problem in _problems(path)]


def start_faults(field: str, shown: str, path: Path) -> list[Fault]:
    """Return why a script cannot be started as a program (``./train.py``), which its first line would have to allow.

    :param field: of the form, that names the script.
    :param shown: what stands there.
    :param path: of the script, on this machine.
    """
    with path.open("rb") as file:
        start = file.read(4)
    runner = INTERPRETERS.get(path.suffix.lower())
    if runner is None or start.startswith((b"#!", b"\x7fELF")):
        return []
    problem = f"{path.name} is started as a program, and its first line is not '#!' and an interpreter"
    return [Fault(field, shown, problem, (), f"{runner[0]} {shown.removeprefix('./')}")]


def _problems(path: Path) -> Iterator[str]:
    suffix = path.suffix.lower()
    with path.open("rb") as file:
        start = file.read(_FIRST_BYTES)
    interpreted = start.startswith(b"#!")
    if suffix == ".ipynb":
        yield from notebook_problems(path)
    elif suffix not in INTERPRETERS and not interpreted and not start.startswith(b"\x7fELF"):
        known = ", ".join(INTERPRETERS)
        yield f"has no interpreter: its name does not end in {known}, and its first line is not '#!' and a program"
    elif (suffix == ".sh" or interpreted) and b"\r\n" in start and suffix != ".py":
        yield (
            "has Windows line ends (CRLF), which a shell takes for a part of each command; save it with LF "
            f"('sed -i s/\\\\r$// {path.name}', and in git '*.sh text eol=lf' in .gitattributes)"
        )
