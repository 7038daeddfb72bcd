# SPDX-License-Identifier: Apache-2.0
"""Which files travel with a script: its project, what it names beside that and the library, but no other project."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from airflow_tpu.core.request.command import Command
from airflow_tpu.core.source.project import Project
from airflow_tpu.core.source.requirements import named_paths

LIBRARY = "trc"
"""The library of the script contract, which every project may import."""

_TEXT_LIMIT = 1024 * 1024  # bytes; a longer file is data, and names no other file
_SKIPPED_DIRS = frozenset({"__pycache__", "node_modules", "venv", "build", "dist"})
_SKIPPED_SUFFIXES = (".pyc", ".tmp", ".swp")


@dataclass(frozen=True)
class Source:
    """Where the files of a run lie on this machine.

    :param top: tree with the script in it.
    :param script: path of the script below ``top``, or ``-m package.module``.
    :param arguments: of the script; a file or folder of ``top`` that they name travels.
    :param home: ``include/train``: the library is there, and what the form names. Several projects may lie there, and
        one of them does not travel with another one.
    :param requirements: requirements file below ``top``, ``home`` or one of ``others``, empty for none.
    :param command: what is run in place of the script, None for the script.
    :param python: version of Python on the TPU VM, None if it is not known.
    :param others: further folders of this kind, in order, for what ``home`` lacks.
    """

    top: Path
    script: str
    home: Path
    arguments: tuple[str, ...] = ()
    requirements: str = ""
    command: Command | None = None
    python: tuple[int, int] | None = None
    others: tuple[Path, ...] = ()

    @property
    def requirements_base(self) -> Path:
        """Folder that the requirements file is named from: the project's own, else a common one."""
        return next(
            (folder for folder in (self.top, *self._common) if (folder / self.requirements).is_file()), self.home
        )

    @property
    def library(self) -> Path:
        """Folder that the library is in."""
        return next((folder for folder in self._common if (folder / LIBRARY).is_dir()), self.home)

    @property
    def _common(self) -> tuple[Path, ...]:
        return (self.home, *self.others)

    @property
    def words(self) -> tuple[str, ...]:
        """What the command line says, in which files are named."""
        return self.arguments if self.command is None else tuple(self.command.text.split())

    @property
    def is_shared(self) -> bool:
        """Whether other projects may lie beside the script's."""
        return self.top == self.home


def selected_files(source: Source, project: Project) -> dict[str, Path]:
    """Return the files that travel, by their path in the archive: hidden files, caches and links do not.

    :param source: where they lie.
    :param project: of the script.
    """
    found: dict[str, Path] = {}
    if source.requirements:
        for path in named_paths(source.requirements_base / source.requirements):
            found.update(_files_at(path, source.requirements_base))
    found.update(_files_at(source.library / LIBRARY, source.library))
    if not source.is_shared:
        found.update(_files_at(source.top, source.top))
    elif project.folder:
        found.update(_files_at(project.working_dir, source.top))
    else:
        for name in _entries_needed(source, project.script):
            found.update(_files_at(source.top / name, source.top))
    return found


def _files_at(path: Path, top: Path) -> dict[str, Path]:
    """Return one file, or the ordinary files below a folder, by their path from ``top``."""
    if path.is_file():
        return {path.relative_to(top).as_posix(): path} if path.is_relative_to(top) else {}
    found: dict[str, Path] = {}
    for directory, directories, names in os.walk(path):
        directories[:] = [name for name in directories if name not in _SKIPPED_DIRS and not name.startswith(".")]
        paths = [Path(directory, name) for name in names if _wanted(name)]
        found.update({each.relative_to(top).as_posix(): each for each in paths if _ordinary(each)})
    return found


def _wanted(name: str) -> bool:
    return not name.startswith(".") and not name.endswith(_SKIPPED_SUFFIXES)


def _ordinary(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _entries_needed(source: Source, script: Path | None) -> list[str]:
    """Return what lies directly in a shared folder and is needed by the script, directly or through one another.

    A Python file needs what it imports and what a text in it names as a part of a path; any other text what it names as
    a word.
    """
    entries = {key: entry for entry in _wanted_entries(source.top) for key in (entry.name, entry.stem)}
    needed = set() if script is None else {script.relative_to(source.top).parts[0]}
    waiting = [path for name in needed for path in _contents(source.top / name)]
    words = {part for word in source.words for part in re.split(r"[/=,:'\";|&<>()]", word)}
    while True:
        new = {entries[word].name for word in words & entries.keys()} - needed
        needed |= new
        waiting += (path for name in new for path in _contents(source.top / name))
        if not waiting:
            return sorted(needed)
        words = _words(waiting.pop())


def _wanted_entries(top: Path) -> Iterable[Path]:
    return sorted(path for path in top.iterdir() if _wanted(path.name) and path.name not in _SKIPPED_DIRS)


def _contents(path: Path) -> list[Path]:
    return list(_files_at(path, path.parent).values())


def _words(path: Path) -> set[str]:
    if path.stat().st_size > _TEXT_LIMIT:
        return set()
    content = path.read_bytes()
    if path.suffix == ".py":
        try:
            return set(_python_names(ast.parse(content)))
        except (SyntaxError, ValueError):
            return set()  # the interpreter will say so
    found = re.findall(r"[\w.-]+", content.decode("utf-8", "ignore"))
    return {*found, *(word.partition(".")[0] for word in found)}  # python3 -m package.module


def _python_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from node.value.split("/")
