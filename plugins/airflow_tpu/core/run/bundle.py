"""What travels to the TPU VM: the user's script with its neighbours, and the runner.

The same files give the same bytes, whenever and wherever they are packed.
"""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from airflow_tpu import protocol
from airflow_tpu.errors import ConfigError, Fault

SIZE_LIMIT = 32 * 1024 * 1024  # bytes; data belongs into a bucket, not into the bundle
REQUIREMENTS = "requirements.txt"

_SKIPPED_DIRS = frozenset({"__pycache__", "node_modules", "venv", "build", "dist"})
_SKIPPED_SUFFIXES = (".pyc", ".tmp", ".swp")
_SOURCES = frozenset({".py", ".sh", ".jl", ".ipynb", ".md", ".c", ".cc", ".h"})
"""Files of these kinds stay in the bundle although they speak of a key: the script may import them."""
_INTERPRETERS: Mapping[str, tuple[str, ...]] = {
    ".py": ("python3",),
    ".sh": ("bash",),
    ".jl": ("julia",),
}


@dataclass(frozen=True)
class Bundle:
    """A tar archive with the script and the files beside it.

    :param script: path of the script inside the bundle.
    :param data: the archive.
    :param has_requirements: whether ``requirements.txt`` at its top was asked for.
    :param left_behind: keys and password files that lie beside the script and are not in the archive.
    """

    script: str
    data: bytes = field(repr=False)
    has_requirements: bool = False
    left_behind: tuple[str, ...] = ()

    @property
    def sha256(self) -> str:
        """Digest of the archive: equal for equal files, whenever and wherever it was made."""
        return hashlib.sha256(self.data).hexdigest()

    @classmethod
    def build(cls, script: Path, root: Path | None = None, requirements: Path | None = None) -> Bundle:
        """Collect the script and all ordinary files below ``root``: it may import its neighbours.

        Hidden files, caches, links and keys stay behind; the keys by name, since the script may look for them.

        :param script: the script.
        :param root: directory to take along, the script's own by default.
        :param requirements: becomes ``requirements.txt`` at the top of the bundle.
        :raises ConfigError: if a file is missing, the script is outside ``root``, or it all is too big.
        """
        root = (root or script.parent).resolve()
        faults = [
            Fault(name, str(path), "there is no such file")
            for name, path in (("script", script), ("requirements", requirements))
            if path is not None and not path.is_file()
        ]
        if not faults and not script.resolve().is_relative_to(root):
            faults.append(Fault("script", str(script), f"is not below {root}"))
        if faults:
            raise ConfigError(faults, "the bundle")
        name = script.resolve().relative_to(root).as_posix()
        found = _files_below(root)
        keys = sorted(path for path in found if path != name and _is_key(found[path]))
        files = {path: found[path] for path in found if path not in keys} | {name: script}
        if requirements is not None:
            files[REQUIREMENTS] = requirements
        _check_size(files)
        return cls(name, _archive(files), requirements is not None, tuple(keys))

    def command(self, arguments: Iterable[str] = ()) -> tuple[str, ...]:
        """Return what runs the script from the top of the bundle; a script of unknown kind runs by itself.

        The path starts with ``./``, so that a name like ``-rf.py`` is not taken for an option.
        """
        interpreter = _INTERPRETERS.get(PurePosixPath(self.script).suffix.lower(), ())
        return (*interpreter, f"./{self.script}", *arguments)


@dataclass(frozen=True)
class RunnerArchive:
    """The runner as it is unpacked on a worker, into a directory named after its content.

    :param data: a tar archive.
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
        return cls(_archive(files))


def _files_below(root: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for directory, directories, names in os.walk(root):
        directories[:] = [name for name in directories if name not in _SKIPPED_DIRS and not name.startswith(".")]
        paths = [Path(directory, name) for name in names if _wanted(name)]
        found.update({path.relative_to(root).as_posix(): path for path in paths if _ordinary(path)})
    return found


def _wanted(name: str) -> bool:
    return not name.startswith(".") and not name.endswith(_SKIPPED_SUFFIXES)


def _ordinary(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


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


def _archive(files: Mapping[str, Path]) -> bytes:
    """Pack files reproducibly: time, place and user leave no trace in the archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(files):
            content = files[name].read_bytes()
            member = tarfile.TarInfo(name)
            member.size = len(content)
            # A script of unknown kind is run by its first line, whether or not it was made executable.
            member.mode = 0o755 if files[name].stat().st_mode & 0o100 or not PurePosixPath(name).suffix else 0o644
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()
