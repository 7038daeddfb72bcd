# SPDX-License-Identifier: Apache-2.0
"""The site of the documentation builds strictly, can be searched, and loads nothing from anywhere else."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.airflow_tpu.ui.chromium import chromium

ROOT = Path(__file__).parents[2]
LOADED = re.compile(r"<(?:script|img|link|iframe)\b[^>]*?(?:src|href)=\"(?P<where>(?:https?:)?//[^\"]+)\"")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site; a link that leads nowhere fails the build."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    command += ["-d", str(out / "trees"), "-c", "docs/site", ".", str(out / "html")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out / "html"


def test_every_page_is_searched_without_a_network(site: Path) -> None:
    """The index of the search is a file beside the pages, with words of the start page, the errors and the gallery."""
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    for name in ("docs/start-composer", "docs/errors", "docs/gallery", "docs/reference", "README"):
        assert f'"{name}"' in index


def test_no_page_loads_anything_from_another_server(site: Path) -> None:
    """Scripts, fonts, styles and pictures are beside the pages."""
    pages = {path.relative_to(site).as_posix(): path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    assert len(pages) > 20
    assert {name: LOADED.findall(text) for name, text in pages.items() if LOADED.search(text)} == {}


def test_gallery_and_reference_are_made_from_the_code(site: Path) -> None:
    """Every example DAG is shown as a whole, and every hook with its methods."""
    gallery = (site / "docs" / "gallery.html").read_text(encoding="utf-8")
    examples = [*(ROOT / "dags").glob("*.py"), *(ROOT / "docs" / "examples").glob("*.py")]
    assert [path.name for path in examples if f"{path.parent.relative_to(ROOT)}/{path.name}" not in gallery] == []
    reference = (site / "docs" / "reference.html").read_text(encoding="utf-8")
    assert "airflow_tpu.hooks.tpu.CloudTPUHook.list_nodes" in reference


def test_gallery_draws_every_task_of_an_example(site: Path) -> None:
    """The picture of a DAG has a box for each task, the mapped ones marked."""
    gallery = (site / "docs" / "gallery.html").read_text(encoding="utf-8")
    for path in (ROOT / "docs" / "examples").glob("*.py"):
        picture = gallery.split(f"tasks of {path.stem}, in their order: ", 1)[1].split("</svg>", 1)[0]
        drawn = {label.removesuffix(" [ ]") for label in re.findall(r">([^<>]+)</text>", picture)}
        assert drawn == set(runpy.run_path(str(path))["dag"].task_dict)
    assert ">one.train [ ]</text>" in gallery


def test_the_site_is_read_on_a_phone_without_a_network(site: Path) -> None:
    """From the files alone, no page is wider than a screen of 360 pixels, and the search finds a page by its words."""
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 360, "height": 740}, offline=True)
        wide = {}
        for path in sorted(site.rglob("*.html")):
            page.goto(path.as_uri())
            width = page.evaluate("document.documentElement.scrollWidth")
            if width > 360:
                wide[path.relative_to(site).as_posix()] = width
        assert wide == {}
        page.goto((site / "docs" / "index.html").as_uri())
        page.get_by_label("Search the documentation").fill("preemption")
        page.get_by_role("button", name="Search").click()
        page.get_by_role("link", name="Trouble", exact=True).last.wait_for()
