"""The page that says where a line lives: what it names is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "plugins" / "airflow_tpu"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
FOLDER = re.compile(r"`([\w/]+/)`")
FILE = re.compile(r"`([\w/]+\.py)`")


def test_every_folder_and_file_of_the_page_exists() -> None:
    """A path of the page is one from the root of the project, of the package, or of its tests."""
    named = {*FOLDER.findall(PAGE), *FILE.findall(PAGE)}
    places = (ROOT, PACKAGE, ROOT / "tests")
    assert named
    assert {name for name in named if not any((place / name).exists() for place in places)} == set()
