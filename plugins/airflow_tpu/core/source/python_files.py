# SPDX-License-Identifier: Apache-2.0
"""What is wrong with the Python of a script on the TPU VM: it does not compile there, or imports what does not travel.

Only what fails for certain is a fault. A name that is not beside the script may be installed on the VM, an import in
``try`` or in a function may never run, and a script that changes ``sys.path`` finds modules elsewhere: none is judged.
"""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from airflow_tpu.core.source.project import PACKAGE_FILE
from airflow_tpu.errors import Fault

Version = tuple[int, int]


@dataclass
class PythonFiles:
    """The script and the modules beside it that it imports, each looked at once.

    :param name: of the form's field that names the script.
    :param top: where paths in messages begin.
    :param python: version of Python on the TPU VM, None if it is not known.
    :param by_path: the script is started by its path, so that it is in no package.
    """

    name: str
    top: Path
    python: Version | None = None
    by_path: bool = False
    _seen: set[Path] = field(default_factory=set)
    _elsewhere: bool = False

    def faults(self, script: Path, working_dir: Path) -> Iterator[Fault]:
        """Everything that is known to fail.

        :param script: a file; one that is not Python has no faults here.
        :param working_dir: where it is started: modules are found there with ``-m``, else beside the script.
        """
        waiting = [script] if script.suffix == ".py" else []
        roots = (script.parent, working_dir)
        while waiting:
            path = waiting.pop()
            if path in self._seen:
                continue
            self._seen.add(path)
            try:
                tree = parsed(path, self.python)
            except (SyntaxError, ValueError) as error:
                yield Fault(self.name, self._shown(path), self._words(error))
                continue
            if path == script and self.by_path and (dotted := _first_relative(tree)):
                yield Fault(self.name, self._shown(path), f"{dotted}{_IN_NO_PACKAGE}")
                continue
            self._elsewhere = self._elsewhere or _changes_path(tree)
            for name, found in _imports(tree, path, () if self._elsewhere else roots):
                if found is None:
                    yield Fault(self.name, self._shown(path), f"imports {name}, and there is no such file beside it")
                else:
                    waiting.append(found)

    def _shown(self, path: Path) -> str:
        return path.relative_to(self.top).as_posix() if path.is_relative_to(self.top) else path.name

    def _words(self, error: SyntaxError | ValueError) -> str:
        version = f"the VM's Python {self.python[0]}.{self.python[1]}" if self.python else "Python"
        line = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        return f"does not compile with {version}{line}: {error.msg if isinstance(error, SyntaxError) else error}"


def parsed(path: Path, python: Version | None = None) -> ast.Module:
    """Compile a file as another version of Python would, and return its tree.

    The grammar of newer versions is refused as far as this Python can tell (``ast.parse``, ``feature_version``: match,
    ``except*``, type parameters, parentheses around context managers; not quotes nested in an f-string). A file for a
    newer Python than this one is not compiled at all, since this one does not know its grammar.

    :raises SyntaxError: it does not compile.
    :raises ValueError: it holds a NUL.
    """
    source = path.read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an odd escape is no fault
        try:
            tree = ast.parse(
                source, str(path), feature_version=python if python and python < sys.version_info else None
            )
            compile(tree, str(path), "exec", dont_inherit=True)  # 'return' outside of a function, and the like
        except SyntaxError:
            if python and python > sys.version_info[:2]:
                return ast.Module([], [])
            raise
    return tree


def _imports(tree: ast.Module, path: Path, roots: tuple[Path, ...]) -> Iterator[tuple[str, Path | None]]:
    """Modules beside a file that it imports as it is loaded, by name; None for one that is missing for certain."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _absolute(alias.name, roots)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield from _absolute(node.module, roots)
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield from _relative(node, path)


_IN_NO_PACKAGE = (
    ": Python refuses the dot in a script that is started by its path. Leave the dot out, or give a command instead of "
    "the script, such as python -m package.module"
)


def _first_relative(tree: ast.Module) -> str:
    """The first import of a file that is relative to its package, empty if it has none."""
    found = (node for node in tree.body if isinstance(node, ast.ImportFrom) and node.level)
    return next((f"line {node.lineno} imports from {'.' * node.level}{node.module or ''}" for node in found), "")


def _changes_path(tree: ast.Module) -> bool:
    """Whether a file names ``sys.path``, so that modules may be found elsewhere."""
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == "path"
        and isinstance(node.value, ast.Name)
        and node.value.id == "sys"
        for node in ast.walk(tree)
    )


def _absolute(name: str, roots: tuple[Path, ...]) -> Iterator[tuple[str, Path | None]]:
    first, *rest = name.split(".")
    root = next((root for root in roots if _file(root / first) is not None), None)
    if root is None or first in sys.stdlib_module_names:
        return
    yield from _below(root, name, [first, *rest])


def _relative(node: ast.ImportFrom, path: Path) -> Iterator[tuple[str, Path | None]]:
    base = path.parent
    for _ in range(node.level - 1):
        base = base.parent
    if node.module:
        yield from _below(base, "." * node.level + node.module, node.module.split("."))


def _below(base: Path, shown: str, parts: list[str]) -> Iterator[tuple[str, Path | None]]:
    """Each module on the way; a folder without ``__init__.py`` may have parts elsewhere, so it ends the search."""
    for part in parts:
        base = base / part
        found = _file(base)
        if found is None:
            if not base.is_dir() and not any(base.parent.glob(f"{part}.*")):
                yield shown, None
            return
        yield shown, found
        if found.name != PACKAGE_FILE:
            return


def _file(base: Path) -> Path | None:
    candidates = (base / PACKAGE_FILE, base.with_name(f"{base.name}.py"))
    return next((path for path in candidates if path.is_file()), None)
