# SPDX-License-Identifier: Apache-2.0
"""The project that a script belongs to: the folder that it runs in, and how it is started there."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from airflow_tpu.core.request.command import Command
from airflow_tpu.core.request.paths import module_name
from airflow_tpu.core.source.first_command import first_command, is_sourced
from airflow_tpu.core.source.program import INTERPRETERS, program_of

PACKAGE_FILE = "__init__.py"
_WITH_VALUE = ("-o", "-W", "-X")
"""Options of bash and Python before the script whose value is the next word."""


@dataclass(frozen=True)
class Project:
    """Where a script runs.

    :param top: what may travel: ``include/train``, or where a source was unpacked.
    :param script: the script, below ``top``; None for a command whose words name none.
    :param folder: working directory, relative to ``top``; empty for ``top`` itself.
    :param argv: what starts it there, without its arguments.
    """

    top: Path
    script: Path | None
    folder: str
    argv: tuple[str, ...]

    @property
    def starts_itself(self) -> bool:
        """Whether the script is the program: its first line names what runs it."""
        return self.script is not None and self.working_dir / self.argv[0] == self.script

    @property
    def working_dir(self) -> Path:
        """The working directory, on this machine."""
        return self.top / self.folder


def command_project(top: Path, command: Command) -> Project:
    """Return the project of a command, which runs at its top.

    :param top: what may travel.
    :param command: what was asked for.
    :raises FileNotFoundError: the script or module that it starts is not there.
    """
    words = command.words
    argv = ("python3", *words[1:]) if words[0] == "python" else words  # the VM may have no other name for it
    return Project(top, _first_script(top, command.text) if command.needs_shell else _named_script(top, argv), "", argv)


def find_project(top: Path, script: str, is_shared: bool = True) -> Project:
    """Return the project of a script, or of ``-m package.module``.

    A script in a folder below ``top`` runs in that folder, as people run it at the root of their repository. One that
    imports relative to its package can only be started as a module, so it is.

    :param top: what may travel.
    :param script: what was asked for.
    :param is_shared: whether the folders of ``top`` are projects; else ``top`` is one.
    :raises FileNotFoundError: there is no such script or module.
    """
    module = module_name(script)
    if module:
        return Project(top, _module_file(top, module), "", ("python3", "-m", module))
    path = top / script
    if not path.is_file():
        raise FileNotFoundError(path)
    package = package_top(path.parent)
    if path.suffix == ".py" and package != path.parent and imports_relatively(path):
        folder = package.relative_to(top).as_posix() if package.is_relative_to(top) else "."
        name = ".".join(path.relative_to(package).with_suffix("").parts)
        return Project(top, path, "" if folder == "." else folder, ("python3", "-m", name))
    first, _, rest = script.partition("/")
    if not rest or not is_shared or (top / first / PACKAGE_FILE).exists():
        return Project(top, path, "", program_of(script))
    return Project(top, path, first, program_of(rest))


def package_top(folder: Path) -> Path:
    """Return the folder that the outermost package around a folder lies in; the folder itself if it is no package."""
    while (folder / PACKAGE_FILE).exists():
        folder = folder.parent
    return folder


def imports_relatively(path: Path) -> bool:
    """Return whether a Python file imports from its own package (``from .models import net``)."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return False
    return any(isinstance(node, ast.ImportFrom) and node.level > 0 for node in ast.walk(tree))


def _first_script(top: Path, line: str) -> Path | None:
    """Return the file that the first command of a line starts at the top, None if the line does not say.

    :raises FileNotFoundError: that file is not there, or the folder that the line goes to.
    """
    first = first_command(line)
    folder = top / first.folder
    if not folder.is_dir():
        raise FileNotFoundError(folder)
    if is_sourced(first.words):
        _existing(folder / first.words[1])
        return None
    script = _named_script(folder, first.words) if first.words else None
    return script if folder == top else None


def _named_script(top: Path, argv: tuple[str, ...]) -> Path | None:
    """Return the file that a command starts, None if its words do not say."""
    program, *words = argv
    if "/" in program:
        return None if program.startswith("/") else _existing(top / program)
    if program not in ("bash", "sh") and not program.startswith("python"):
        found = (top / word for word in words if PurePosixPath(word).suffix in INTERPRETERS)
        return next((path for path in found if path.is_file()), None)
    rest = iter(words)
    for word in rest:
        if word == "-m":
            return _own_module(top, next(rest, ""))
        if word == "-c":
            return None
        if word in _WITH_VALUE:
            next(rest, None)
        elif not word.startswith("-"):
            return None if word.startswith("/") else _existing(top / word)
    return None


def _own_module(top: Path, module: str) -> Path | None:
    """Return the file of a module of the project; an installed one is not here."""
    first = module.partition(".")[0]
    return _module_file(top, module) if (top / first).is_dir() or (top / f"{first}.py").is_file() else None


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise FileNotFoundError(path)
    return path


def _module_file(top: Path, module: str) -> Path:
    path = top.joinpath(*module.split("."))
    for found in (path.with_suffix(".py"), path / "__main__.py"):
        if found.is_file():
            return found
    raise FileNotFoundError(path.with_suffix(".py"))
