# SPDX-License-Identifier: Apache-2.0
"""The wheel: for Cloud Composer, where the triggerer sees no plugins folder, it is the only way in."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DATA = {
    "airflow_tpu/_include/catalogue/accelerators.csv",
    "airflow_tpu/_include/catalogue/generations.csv",
    "airflow_tpu/_include/catalogue/prices.csv",
    "airflow_tpu/_include/catalogue/runtime_versions.csv",
    "airflow_tpu/_include/catalogue/frameworks.csv",
    "airflow_tpu/_include/catalogue/transfer.csv",
    "airflow_tpu/_include/dags/tpu_train.py",
    "airflow_tpu/_include/grants/example.yaml",
    "airflow_tpu/_include/remote/runner.py",
    "airflow_tpu/_include/train/digits.py",
    "airflow_tpu/py.typed",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    """The wheel, built from the working tree as pip would build it."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


def entry_points(wheel: zipfile.ZipFile) -> list[EntryPoint]:
    """What the wheel announces to Airflow."""
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt"))
    parser = configparser.ConfigParser(delimiters=("=",))
    parser.read_string(wheel.read(name).decode())
    return [EntryPoint(key, value, group) for group in parser.sections() for key, value in parser[group].items()]


def test_every_module_of_the_package_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    """The wheel holds the package as it is in the plugins folder."""
    package = ROOT / "plugins" / "airflow_tpu"
    modules = {path.relative_to(ROOT / "plugins").as_posix() for path in package.rglob("*.py")}
    assert modules - set(wheel.namelist()) == set()


def test_what_airflow_reads_or_ships_travels_inside_the_package(wheel: zipfile.ZipFile) -> None:
    """The runner, the example scripts and the catalogue are found without a checkout."""
    assert set(wheel.namelist()) >= DATA


def test_the_usage_page_travels_with_its_files(wheel: zipfile.ZipFile) -> None:
    """Pages, scripts, styles and the chart library with its licence are in the wheel."""
    static = ROOT / "plugins" / "airflow_tpu" / "ui" / "static"
    files = {path.relative_to(ROOT / "plugins").as_posix() for path in static.rglob("*") if path.is_file()}
    assert {path.rpartition(".")[2] for path in files} >= {"html", "js", "css", "svg"}
    assert "airflow_tpu/ui/static/vendor/uplot/LICENSE" in files
    assert files - set(wheel.namelist()) == set()


def test_nothing_else_is_installed(wheel: zipfile.ZipFile) -> None:
    """Neither the local cloud nor tests nor byte code lands in the user's environment."""
    names = wheel.namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"airflow_tpu"}
    assert [name for name in names if name.endswith(".pyc")] == []


def test_no_grant_of_anybody_is_installed(wheel: zipfile.ZipFile) -> None:
    """Of the grants only the example travels: neither the local cloud's nor one that lies beside it."""
    grants = [name for name in wheel.namelist() if name.startswith("airflow_tpu/_include/grants/")]
    assert grants == ["airflow_tpu/_include/grants/example.yaml"]


def metadata(wheel: zipfile.ZipFile) -> Message:
    """What a package index shows."""
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return message_from_bytes(wheel.read(name))


def test_an_index_shows_who_where_and_under_which_licence(wheel: zipfile.ZipFile) -> None:
    """Author, licence, addresses and the mark for type checkers are in the metadata."""
    found = metadata(wheel)
    assert found["Author"]
    assert found["License-Expression"] == "Apache-2.0"
    labels = {value.split(",")[0] for value in found.get_all("Project-URL", [])}
    assert labels == {"Homepage", "Documentation", "Changelog", "Issues", "Source"}
    assert "Typing :: Typed" in found.get_all("Classifier", [])


def test_links_and_pictures_of_the_long_description_are_absolute(wheel: zipfile.ZipFile) -> None:
    """An index has no file of ours: each link is an address, and each picture that of the file itself."""
    text = str(metadata(wheel).get_payload())
    targets = re.findall(r"(!?)\[[^\]]*\]\(([^)\s]+)\)", text)
    assert len(targets) > 30
    assert [target for _, target in targets if not target.startswith("https://")] == []
    pictures = [target for image, target in targets if image]
    assert len(pictures) == (ROOT / "README.md").read_text(encoding="utf-8").count("![")
    assert all("/raw/main/docs/images/" in target for target in pictures)


def test_airflow_finds_the_provider(wheel: zipfile.ZipFile) -> None:
    """The entry point through which Airflow finds the provider names a module of the wheel."""
    points = entry_points(wheel)
    assert "apache_airflow_provider" in {point.group for point in points}
    files = {f"{point.module.replace('.', '/')}.py" for point in points}
    assert files - set(wheel.namelist()) == set()


def test_the_package_is_imported_from_the_wheel_alone(wheel: zipfile.ZipFile) -> None:
    """Without the checkout on its path Python imports the package and names the version that the wheel has."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); import airflow_tpu; print(airflow_tpu.__version__)"
    command = [sys.executable, "-I", "-c", code, str(wheel.filename)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    assert f"-{printed}-" in Path(str(wheel.filename)).name
