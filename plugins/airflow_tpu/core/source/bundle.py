# SPDX-License-Identifier: Apache-2.0
"""What travels to the TPU VM: the user's script with its neighbours, and the runner.

The same files give the same bytes, whenever and wherever they are packed.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from airflow_tpu import protocol
from airflow_tpu.core.source.first_command import tool_packages
from airflow_tpu.core.source.notebook import notebook_packages
from airflow_tpu.core.source.program import script_faults, start_faults
from airflow_tpu.core.source.project import Project, command_project, find_project
from airflow_tpu.core.source.python_files import PythonFiles
from airflow_tpu.core.source.requirements import requirement_faults
from airflow_tpu.core.source.selection import Source, selected_files
from airflow_tpu.errors import ConfigError, Fault

SIZE_LIMIT = 32 * 1024 * 1024  # bytes; data belongs into a bucket, not into the bundle
_SOURCES = frozenset({".py", ".sh", ".jl", ".ipynb", ".md", ".c", ".cc", ".h"})
"""Files of these kinds stay in the bundle although they speak of a key: the script may import them."""


@dataclass(frozen=True)
class Bundle:
    """A tar archive with the script and what it needs.

    :param program: what starts the script in the working directory, without its arguments.
    :param data: the archive.
    :param working_dir: folder in the archive in which everything is started, empty for its top.
    :param requirements: path of the requirements file in the archive, empty for none.
    :param left_behind: keys and password files that lie beside the script and are not in the archive.
    :param packages: what starts the script and no project brings: of a notebook, of ``uv run``.
    """

    program: tuple[str, ...]
    data: bytes = field(repr=False)
    working_dir: str = ""
    requirements: str = ""
    left_behind: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()

    @property
    def sha256(self) -> str:
        """Digest of the archive: equal for equal files, whenever and wherever it was made."""
        return hashlib.sha256(self.data).hexdigest()

    @classmethod
    def build(cls, source: Source) -> Bundle:
        """Collect the project of a script.

        Hidden files, caches, links and keys stay behind; the keys by name, since the script may look for them.

        :param source: the script, and where it lies.
        :raises ConfigError: a file is missing, the script cannot run on the VM, or it all is too big.
        """
        project = _project(source)
        found = selected_files(source, project)
        keys = sorted(path for path in found if found[path] != project.script and _is_key(found[path]))
        files = {path: found[path] for path in found if path not in keys}
        if project.script is not None:
            files[project.script.relative_to(source.top).as_posix()] = project.script
        _check_size(files)
        started = frozenset({project.script} if project.starts_itself and project.script else ())
        data = _archive(files, started)
        packages = _tools(source, project) or notebook_packages(project.script)
        return cls(project.argv, data, project.folder, source.requirements, tuple(keys), packages)


def _tools(source: Source, project: Project) -> tuple[str, ...]:
    line = source.command.text if source.command is not None and source.command.needs_shell else ""
    return tool_packages(project.argv, line)


def _project(source: Source) -> Project:
    command, faults, project = source.command, list[Fault](), None
    field, shown = ("script", source.script) if command is None else ("command", command.text)
    try:
        if command is None:
            project = find_project(source.top, source.script, source.is_shared)
        else:
            project = command_project(source.top, command)
        faults += _script_faults(field, project, project.script, source) if project.script else ()
        faults += start_faults(field, shown, project.script) if project.starts_itself and project.script else ()
    except FileNotFoundError as error:
        faults.append(Fault(field, shown, f"there is no such file: {error.args[0]}"))
    faults += _requirement_faults(source) if source.requirements else []
    if project is None or faults:
        raise ConfigError(faults, "the bundle")
    return project


def _script_faults(field: str, project: Project, script: Path, source: Source) -> Iterator[Fault]:
    yield from script_faults(field, script)
    files = PythonFiles(field, project.top, source.python, by_path=source.command is None)
    yield from files.faults(script, project.working_dir)


def _requirement_faults(source: Source) -> list[Fault]:
    path = source.requirements_base / source.requirements
    if path.is_file():
        return requirement_faults(path)
    return [Fault("requirements", source.requirements, f"there is no such file in {source.requirements_base}")]


@dataclass(frozen=True)
class RunnerArchive:
    """The runner as it is unpacked on a worker, into a directory named after its content.

    :param data: a tar archive, compressed with gzip.
    """

    data: bytes = field(repr=False)

    @property
    def digest(self) -> str:
        """Names the directory: another version of the runner never overwrites one in use."""
        return hashlib.sha256(self.data).hexdigest()[:16]

    @classmethod
    def build(cls, remote_dir: Path) -> RunnerArchive:
        """Pack the runner's modules and the protocol.

        :param remote_dir: where ``runner.py`` is.
        :raises FileNotFoundError: if it is not there.
        """
        files = {path.relative_to(remote_dir).as_posix(): path for path in sorted(remote_dir.rglob("*.py"))}
        if "runner.py" not in files:
            raise FileNotFoundError(remote_dir / "runner.py")
        files["protocol.py"] = Path(protocol.__file__)
        # A quarter of the size, before the first command on each new TPU VM. No time: equal files, equal name.
        return cls(gzip.compress(_archive(files), mtime=0))


def _is_key(path: Path) -> bool:
    """Whether a file is a key or a password file: the TPU VM has an account of its own, and its users no need of it."""
    if protocol.is_secret_name(path.name):
        return True
    if path.suffix.lower() in _SOURCES or path.stat().st_size > protocol.SECRET_SIZE:
        return False
    return protocol.is_secret_text(path.read_bytes())


def _check_size(files: Mapping[str, Path]) -> None:
    sizes = {name: path.stat().st_size for name, path in files.items()}
    total = sum(sizes.values())
    if total > SIZE_LIMIT:
        largest = sorted(sizes, key=lambda name: sizes[name], reverse=True)[:3]
        shown = ", ".join(f"{name} ({sizes[name]:,} bytes)" for name in largest)
        problem = f"more than {SIZE_LIMIT:,} bytes lie beside the script; put data into a bucket. Largest: {shown}"
        raise ConfigError([Fault("script", f"{total:,} bytes", problem)], "the bundle")


def _archive(files: Mapping[str, Path], started: Set[Path] = frozenset()) -> bytes:
    """Pack files reproducibly: time, place and user leave no trace in the archive.

    :param started: files that are run by themselves, also from a disk that keeps no such right.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(files):
            content = files[name].read_bytes()
            member = tarfile.TarInfo(name)
            member.size = len(content)
            # A script of unknown kind is run by its first line, whether or not it was made executable.
            runs = files[name] in started or files[name].stat().st_mode & 0o100 or not PurePosixPath(name).suffix
            member.mode = 0o755 if runs else 0o644
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()
