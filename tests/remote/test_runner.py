# SPDX-License-Identifier: Apache-2.0
"""What is shipped to a TPU VM: small, the same bytes for the same files, and nothing that an old Python lacks."""

from __future__ import annotations

import ast
import io
import shutil
import sys
import tarfile
from pathlib import Path

from airflow_tpu import protocol
from airflow_tpu.core.source.bundle import RunnerArchive
from tests.remote.vm import REPOSITORY, RUN, Machine

REMOTE = REPOSITORY / "include" / "remote"
SIZE_LIMIT = 96 * 1024  # bytes: it travels through SSH before the first command on each new TPU VM


def test_the_runner_is_python_3_8(oldest_machine: Machine) -> None:
    """Every shipped file parses as Python 3.8, and a run works with the oldest interpreter found here."""
    files = [*REMOTE.rglob("*.py"), Path(protocol.__file__)]
    for path in files:
        ast.parse(path.read_text(), str(path), feature_version=(3, 8))
    assert oldest_machine.run("sh", "-c", "echo $0; exit 4")["exit_code"] == 4
    assert oldest_machine.stop(0.0)["state"] == "finished"
    assert oldest_machine.status(RUN)["size"] == len(oldest_machine.log())


def test_the_runner_needs_the_standard_library_only() -> None:
    """No shipped file imports what a bare Python does not have."""
    files = [*REMOTE.rglob("*.py"), Path(protocol.__file__)]
    ours = {path.stem for path in files} | {path.name for path in REMOTE.iterdir() if path.is_dir()}
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert {name.partition(".")[0] for name in names} <= ours | sys.stdlib_module_names, path


def test_the_archive_is_a_function_of_its_files(tmp_path: Path) -> None:
    """Packing the runner twice gives the same bytes, and another content another directory on the worker."""
    copy = tmp_path / "remote"
    shutil.copytree(REMOTE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    first, second = RunnerArchive.build(REMOTE), RunnerArchive.build(copy)
    (copy / "commands" / "stop.py").write_text("")
    assert first == second
    assert RunnerArchive.build(copy).digest != first.digest


def test_the_archive_holds_the_modules_and_nothing_else(tmp_path: Path) -> None:
    """Modules of every folder and the protocol, without compiled files, owners or times; it stays small."""
    copy = tmp_path / "remote"
    shutil.copytree(REMOTE, copy)
    (copy / "gcs" / "__pycache__").mkdir(exist_ok=True)
    (copy / "gcs" / "__pycache__" / "objects.cpython-38.pyc").write_bytes(b"compiled")
    data = RunnerArchive.build(copy).data
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        members = tar.getmembers()
    modules = {path.relative_to(REMOTE).as_posix() for path in REMOTE.rglob("*.py")}
    assert {member.name for member in members} == modules | {"protocol.py"}
    assert {(member.mtime, member.uid, member.gid, member.uname, member.mode) for member in members} == {
        (0, 0, 0, "", 0o644)
    }
    assert len(data) < SIZE_LIMIT
