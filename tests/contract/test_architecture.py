# SPDX-License-Identifier: Apache-2.0
"""The pages that say where a change belongs: every folder is on the map, and everything they name exists.

A test that fails here names the row to mend: a folder that moved, was added or went away changes the map in
docs/architecture.md, a file that moved changes the tables "I want to change ..." of README.md and CONTRIBUTING.md.
"""

from __future__ import annotations

import re
import subprocess
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, name_of

PACKAGE = ROOT / "plugins" / "airflow_tpu"
MAP = ROOT / "docs" / "architecture.md"
TABLES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md")
CONTRACTS = ("pyproject.toml", "importlinter.remote.toml")
CODE = {".py", ".js", ".sh", ".sql", ".csv", ".yaml", ".toml", ".Dockerfile"}
# Tests of a module lie in the folder that mirrors the module's: the folder needs no row of its own.
MIRRORS = {
    "tests/airflow_tpu": "plugins/airflow_tpu",
    "tests/localcloud": "localcloud",
    "tests/remote": "include/remote",
    "tests/scripts": "scripts",
    "tests/train": "include/train",
}
QUOTED = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"[\w.-]*(?:/[\w.-]+)*/?")
MODULE = re.compile(r"(?:airflow_tpu|localcloud)(?:\.\w+)+")


def rows(page: Path, first: str) -> list[list[str]]:
    """Cells of each row of the page's tables whose first heading begins so."""
    found: list[list[str]] = []
    inside = False
    for line in page.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        inside = bool(cells) and (inside or cells[0].startswith(first))
        if inside and not cells[0].startswith((first, "-")):
            found.append(cells)
    return found


def paths(text: str) -> list[str]:
    """What stands in backticks and is a path: it has a slash, or ends like a file."""
    quoted = [name for name in QUOTED.findall(text) if PATH.fullmatch(name)]
    return [name for name in quoted if "/" in name or Path(name).suffix in {*CODE, ".md"}]


def exists(name: str, *below: str) -> bool:
    """A path is one from the root of the project or of the package, or from one of a row's folders.

    :param name: a folder ends with a slash.
    """
    places = [ROOT / name, PACKAGE / name, *(ROOT / folder(base) / name for base in below)]
    return any(place.is_dir() if name.endswith("/") else place.is_file() for place in places)


def folder(name: str) -> str:
    """A folder of the map, from the root of the project."""
    return name.rstrip("/") if (ROOT / name).is_dir() else f"plugins/airflow_tpu/{name.rstrip('/')}"


def folders_with_code() -> set[str]:
    """Every folder of the repository that has code or data in it, from the root."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    files = [Path(name) for name in names if name and (ROOT / name).is_file()]
    # A file without a suffix is a script.
    return {path.parent.as_posix() for path in files if path.suffix in {*CODE, ""}} - {"."}


def source_of(tests: str) -> str:
    """The folder that a folder of tests mirrors; the folder itself if it mirrors none."""
    for mirror, source in MIRRORS.items():
        if tests == mirror or tests.startswith(f"{mirror}/"):
            return source + tests.removeprefix(mirror)
    return tests


def test_every_folder_is_on_the_map() -> None:
    """Each folder with code has a row on the map, or is the mirror of one that has."""
    named = {folder(name) for cells in rows(MAP, "folder") for name in paths(cells[0])}
    assert {name for name in folders_with_code() if name not in named and source_of(name) not in named} == set()


def test_every_row_of_the_map_is_true() -> None:
    """A row names folders, says what belongs there, and names only files that exist there or in the project."""
    table = rows(MAP, "folder")
    assert len(table) > 40
    assert [cells[0] for cells in table if not paths(cells[0]) or not cells[1]] == []
    named = [(cells[0], name) for cells in table for name in paths(cells[1]) if not exists(name, *paths(cells[0]))]
    assert named == []


def test_every_row_of_the_map_lists_the_modules_of_its_folder() -> None:
    """Where a row has a third cell, it lists the modules of the folder by name, and all of them."""
    listed = {
        folder(paths(cells[0])[0]): cells[2].replace("`", " ").split() for cells in rows(MAP, "folder") if cells[2:]
    }
    wanted = {name: modules(ROOT / name) for name in listed}
    assert {name: wanted[name] for name, found in listed.items() if sorted(found) != wanted[name]} == {}


def modules(place: Path) -> list[str]:
    """Names of the modules of a folder, in the order of the alphabet."""
    return sorted(path.stem for path in place.glob("*.py") if not path.stem.startswith("__"))


def test_every_path_of_the_page_exists() -> None:
    """Outside the map a path of the page is one from the root of the project or of the package."""
    text = "\n".join(line for line in MAP.read_text(encoding="utf-8").splitlines() if not line.startswith("|"))
    assert [name for name in paths(text) if not exists(name)] == []


def test_the_layers_are_those_of_the_contracts() -> None:
    """Each layer of the contracts that import-linter proves is on the page as it is there, the highest one first."""
    text = MAP.read_text(encoding="utf-8")
    contracts = [
        one
        for name in CONTRACTS
        for one in tomllib.loads((ROOT / name).read_text())["tool"]["importlinter"]["contracts"]
    ]
    layers = {one["name"]: [layer(names) for names in one["layers"]] for one in contracts if one["type"] == "layers"}
    package = layers.pop("The package's layers")
    drawn = re.findall(r"└─ (\w+(?: · \w+)*)", text)
    assert drawn == package
    lines = {name: " → ".join(found) for name, found in layers.items()}
    assert {name: line for name, line in lines.items() if f"`{line}`" not in text} == {}


def layer(names: str) -> str:
    """One layer as the page writes it; import-linter puts names that not every container has in brackets."""
    return " · ".join(name.strip("() ") for name in names.split("|"))


@pytest.mark.parametrize("page", TABLES, ids=name_of)
def test_every_row_of_the_tables_leads_somewhere(page: Path) -> None:
    """A row "I want to change ..." names at least one file or folder, and all that it names exist."""
    table = rows(page, "I want to change")
    assert len(table) >= 10
    assert [cells[0] for cells in table if not paths(cells[1])] == []
    assert [(cells[0], name) for cells in table for name in paths(" ".join(cells)) if not exists(name)] == []


def test_no_change_stands_in_both_tables() -> None:
    """CONTRIBUTING.md continues the table of the README; it does not repeat it."""
    changes = [cells[0] for page in TABLES for cells in rows(page, "I want to change")]
    assert sorted(changes) == sorted(set(changes))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_module_that_a_page_names_exists(page: Path) -> None:
    """A module in backticks, written with dots, can be imported; its last word may be a name inside it."""
    named = [name for name in QUOTED.findall(page.read_text(encoding="utf-8")) if MODULE.fullmatch(name)]
    assert [name for name in named if not is_module(name)] == []


def is_module(name: str) -> bool:
    """Whether Python finds a module of that name, or one that the last word may be inside of."""
    for dotted in (name, name.rpartition(".")[0]):
        try:
            if find_spec(dotted) is not None:
                return True
        except ModuleNotFoundError:
            continue
    return False
