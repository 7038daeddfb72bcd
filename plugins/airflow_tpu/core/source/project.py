"""The project that a script belongs to: the folder that it runs in, and how it is started there."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from airflow_tpu.core.request.paths import module_name
from airflow_tpu.core.source.program import program_of
from airflow_tpu.errors import Fault

PACKAGE_FILE = "__init__.py"


@dataclass(frozen=True)
class Project:
    """Where a script runs.

    :param top: what may travel: ``include/train``, or where a source was unpacked.
    :param script: the script, below ``top``.
    :param folder: working directory, relative to ``top``; empty for ``top`` itself.
    :param argv: what starts it there, without its arguments.
    """

    top: Path
    script: Path
    folder: str
    argv: tuple[str, ...]

    @property
    def working_dir(self) -> Path:
        """The working directory, on this machine."""
        return self.top / self.folder


def find_project(top: Path, script: str) -> Project:
    """Return the project of a script, or of ``-m package.module``.

    A script in a folder below ``top`` runs in that folder, as people run it at the root of their repository. One that
    imports relative to its package can only be started as a module, so it is.

    :param top: what may travel.
    :param script: what was asked for.
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
    if not rest or (top / first / PACKAGE_FILE).exists():
        return Project(top, path, "", program_of(script))
    return Project(top, path, first, program_of(rest))


def missing(error: FileNotFoundError, script: str) -> Fault:
    """Return the fault of a script that is not there."""
    what = "there is no such module" if module_name(script) else "there is no such file"
    return Fault("script", script, f"{what}: {error.args[0] if error.args else script}")


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


def _module_file(top: Path, module: str) -> Path:
    path = top.joinpath(*module.split("."))
    for found in (path.with_suffix(".py"), path / "__main__.py"):
        if found.is_file():
            return found
    raise FileNotFoundError(path.with_suffix(".py"))
