# SPDX-License-Identifier: Apache-2.0
"""House rules that no linter knows: sizes of files and functions, names of plugins, nothing of one person's machine."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = ("plugins", "localcloud", "include", "dags", "scripts", "tests", "benchmarks")
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 40

# A home directory, or a package index that only one workplace can reach.
PRIVATE = re.compile(r"/home/(?!airflow/)\w+/|/root/|/Users/\w+/|--(extra-)?index-url|--find-links|--trusted-host")
URL_HOST = re.compile(r"https?://([^/\s:\"'>)]+)")
PUBLIC_HOSTS = frozenset(
    {
        "localhost",
        "127.0.0.1",
        "docs.astral.sh",
        "github.com",  # where the repository is, in the package's metadata
        "www.python.org",
        "import-linter.readthedocs.io",
        "cloud.google.com",
        "$LOCATION-python.pkg.dev",  # the user's own Artifact Registry, where scripts/deploy-composer puts the wheel
    }
)

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def python_files() -> Iterator[Path]:
    """All Python code of the project."""
    for folder in CODE:
        yield from (ROOT / folder).rglob("*.py")


def functions(path: Path) -> Iterator[FunctionNode]:
    """All functions and methods of a file, nested ones included."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    yield from (node for node in ast.walk(tree) if isinstance(node, FunctionNode))


def code_lines(function: FunctionNode) -> int:
    """Lines from ``def`` to the end, the docstring not counted."""
    first = function.body[0]
    docstring = ast.get_docstring(function, clean=False)
    prose = (first.end_lineno or first.lineno) - first.lineno + 1 if docstring is not None else 0
    return (function.end_lineno or function.lineno) - function.lineno + 1 - prose


def tracked_files() -> list[Path]:
    """All files that a clone has, and those about to be added."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in names.split("\0") if name and (ROOT / name).is_file()]


def lines_with(pattern: re.Pattern[str], files: list[Path]) -> Iterator[tuple[str, re.Match[str]]]:
    """Each match of the pattern in the text files, with ``file:line``."""
    for path in files:
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
            yield from ((f"{path.relative_to(ROOT)}:{number}", match) for match in pattern.finditer(line))


def test_no_file_is_longer_than_the_limit() -> None:
    """A Python file has at most 400 lines: beyond that it has two subjects."""
    sizes = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in python_files()}
    assert sizes, "no Python file was found"
    assert {name: size for name, size in sizes.items() if size > MAX_FILE_LINES} == {}


def test_no_function_is_longer_than_the_limit() -> None:
    """A function has at most 40 lines of code."""
    sizes = {
        f"{path.relative_to(ROOT)}:{function.lineno} {function.name}": code_lines(function)
        for path in python_files()
        for function in functions(path)
    }
    assert {name: size for name, size in sizes.items() if size > MAX_FUNCTION_LINES} == {}


def test_plugin_files_do_not_shadow_the_standard_library() -> None:
    """A file that the plugin loader runs by its stem replaces no module of Python (apache/airflow#63548)."""
    stems = {path.stem for path in (ROOT / "plugins").glob("*.py")}
    assert stems & sys.stdlib_module_names == set()


def test_the_package_is_hidden_from_the_plugin_loader() -> None:
    """plugins/.airflowignore names the whole package, so that no file of it is run a second time by its stem."""
    rules = (ROOT / "plugins" / ".airflowignore").read_text(encoding="utf-8").split()
    assert "airflow_tpu/**" in rules


def test_nothing_belongs_to_one_machine() -> None:
    """No file of the project names a home directory or an option that points to a private package index."""
    files = [path for path in tracked_files() if path != Path(__file__)]
    assert [f"{place} {match[0]}" for place, match in lines_with(PRIVATE, files)] == []


@pytest.mark.parametrize("pattern", ["requirements*", "pyproject.toml", "Makefile", "scripts/*", ".ci/run"])
def test_installation_reaches_public_hosts_only(pattern: str) -> None:
    """What installs, builds or checks the project names no host but well-known public ones and this machine."""
    files = [path for path in ROOT.glob(pattern) if path.is_file()]
    assert files, f"no file matches {pattern}"
    hosts = {match[1]: place for place, match in lines_with(URL_HOST, files)}
    assert {host: place for host, place in hosts.items() if host not in PUBLIC_HOSTS} == {}


def public_classes(folder: str) -> Iterator[str]:
    """Names of the public classes that the modules below a folder define."""
    for path in (ROOT / folder).rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        yield from (node.name for node in tree.body if isinstance(node, ast.ClassDef) and node.name[0] != "_")


def test_no_class_name_has_two_meanings() -> None:
    """A public class name is defined once in plugin and runner together, so that it says which one is meant."""
    names = Counter(name for folder in ("plugins/airflow_tpu", "include/remote") for name in public_classes(folder))
    assert len(names) > 100
    assert {name: times for name, times in names.items() if times > 1} == {}
