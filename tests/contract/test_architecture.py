"""The page that says where a line lives: what it names is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "plugins" / "airflow_tpu"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
ROLES = ("hooks", "triggers", "operators")
# | **noun** | cell for core | cell for the roles |
ROW = re.compile(r"^\| (?:\*\*(\w+)\*\*|all of them) \|([^|]*)\|([^|]*)\|$", re.MULTILINE)
GRID = re.compile(r"^\| \*\*(\w+)\*\* \|" + r"([^|]*)\|" * 5 + "$", re.MULTILINE)
NAME = re.compile(r"`(\w+)`")
FOLDER = re.compile(r"`([\w/]+/)`")
FILE = re.compile(r"`([\w/]+\.py)`")


def stems(*folders: str) -> set[str]:
    """Modules of some folders of the package."""
    return {path.stem for folder in folders for path in (PACKAGE / folder).glob("*.py")}


def test_every_module_of_the_map_is_where_it_says() -> None:
    """What stands in the column of a role is a module of that role."""
    rows = ROW.findall(PAGE)
    assert len(rows) > 5
    core = {name for _, cell, _ in rows for name in NAME.findall(cell)}
    roles = {name for _, _, cell in rows for name in NAME.findall(cell)}
    assert core - stems("core") == set()
    assert roles - stems(*ROLES) == set()


def test_every_noun_of_the_grid_has_its_file() -> None:
    """A cell that says something means that the role's folder has a file of the noun's name, an empty one that not."""
    rows = GRID.findall(PAGE)
    assert len(rows) == 7
    for noun, *cells in rows:
        told = {role for role, cell in zip(("core", *ROLES, "links"), cells, strict=False) if cell.strip()}
        found = {role for role in ("core", "hooks", "triggers", "operators", "links") if noun in stems(role)}
        assert (noun, told) == (noun, found)


def test_every_folder_and_file_of_the_page_exists() -> None:
    """A path of the page is one from the root of the project, of the package, or of its tests."""
    named = {*FOLDER.findall(PAGE), *FILE.findall(PAGE)}
    places = (ROOT, PACKAGE, ROOT / "tests")
    assert named
    assert {name for name in named if not any((place / name).exists() for place in places)} == set()
