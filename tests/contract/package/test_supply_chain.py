# SPDX-License-Identifier: Apache-2.0
"""What is installed is what was checked, and a release says the same everywhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import airflow_tpu

ROOT = Path(__file__).parents[3]
PINNED = ("requirements.txt", "requirements-dev.txt", "docker/localcloud-requirements.txt")
HEADING = re.compile(r"^## \[([^\]]+)\](?: - (\d{4}-\d\d-\d\d))?$", re.MULTILINE)
STRANGERS = re.compile(r"extra[-_]index[-_]url", re.IGNORECASE)


def pins(name: str) -> list[str]:
    """Each requirement of a file with its hashes, on one line."""
    text = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize("name", PINNED)
def test_every_pin_names_the_files_that_it_means(name: str) -> None:
    """One version and at least one SHA-256 for each package: another file of that name is not installed."""
    found = pins(name)
    assert len(found) > 50
    loose = [
        line for line in found if not re.fullmatch(r"[^=]+==\S+( ;[^-]+)?(\s+--hash=sha256:[0-9a-f]{64})+\s*", line)
    ]
    assert loose == []


def test_no_two_files_disagree_about_a_version() -> None:
    """What a person runs and what a container runs has been tested in the versions of requirements-dev.txt."""
    versions = {name: {re.split(r"[\s;]", line)[0] for line in pins(name)} for name in PINNED}
    assert all(found <= versions["requirements-dev.txt"] for found in versions.values())


@pytest.mark.parametrize("place", ["Dockerfile", "tests/compose/airflow.Dockerfile", "scripts/setup"])
def test_what_installs_pins_asks_for_their_hashes(place: str) -> None:
    """Every installation from a pinned file says so itself, so that a pin without a hash is an error."""
    text = (ROOT / place).read_text(encoding="utf-8").replace("\\\n", " ")
    installs = [line for line in text.splitlines() if re.search(r"pip install .*--requirement", line)]
    assert installs
    assert [line for line in installs if "--require-hashes" not in line] == []


def test_no_second_index_can_answer_for_a_package_of_ours() -> None:
    """Of two indexes the higher version wins, whoever has published it: nothing here sets that up."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    # The installation on a TPU VM reads what the VM's owner has set: kept wheels are those of one set of indexes.
    reads = ("tests/contract/package/", "include/remote/commands/install.py")
    files = [ROOT / name for name in listing.split("\0") if name and not name.startswith(reads)]
    named = [path for path in files if path.is_file() and STRANGERS.search(path.read_text("utf-8", errors="replace"))]
    assert [str(path.relative_to(ROOT)) for path in named] == []


def test_the_changelog_leads_to_the_version() -> None:
    """Above the last release stands only what is not released; a released version is in the source with its date."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = HEADING.findall(text)
    assert len(headings) == len(re.findall(r"^## ", text, re.MULTILINE))
    assert headings[0] == ("Unreleased", "") or headings[0][0] == airflow_tpu.__version__
    assert [version for version, date in headings if version != "Unreleased" and not date] == []


def test_the_version_is_written_down_once() -> None:
    """The wheel, the command line and the page take it from the package; pyproject.toml has none of its own."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert '"version"' in next(line for line in text.splitlines() if line.startswith("dynamic"))
    assert re.search(r"^version\s*=", text, re.MULTILINE) is None
    assert Requirement(f"x=={airflow_tpu.__version__}")
