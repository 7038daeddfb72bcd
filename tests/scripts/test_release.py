# SPDX-License-Identifier: Apache-2.0
"""scripts/release makes one commit, a tag and two files to publish, and only from what is committed and new."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
AUTHOR = {f"GIT_{who}_{what}": "x@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, as somebody with a name."""
    environment = {**os.environ, **AUTHOR, "VENV": sys.prefix}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The project as a repository of its own, with all that is in the working tree committed."""
    listing = run(ROOT, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").stdout
    for name in filter(None, listing.split("\0")):
        if (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tmp_path / name)
    for command in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "All")):
        assert run(tmp_path, "git", *command).returncode == 0
    return tmp_path


def test_a_release_is_whole(copy: Path) -> None:
    """Version, dated changelog and addresses are in the tagged commit and in the wheel; the second time is refused."""
    done = run(copy, "scripts/release", "7.8.9", "some-team")
    assert done.returncode == 0, done.stderr
    assert run(copy, "git", "describe").stdout == "v7.8.9\n"
    assert run(copy, "git", "status", "--porcelain").stdout == ""
    assert run(copy, "git", "grep", "-l", "github.com/OWNER", "--", ":!scripts", ":!tests/scripts").stdout == ""
    changelog = (copy / "CHANGELOG.md").read_text(encoding="utf-8")
    assert changelog.index("## [Unreleased]") < changelog.index("## [7.8.9] - 20") < changelog.index("\n- ")
    assert {path.name for path in (copy / "dist").iterdir()} == {
        "airflow_provider_tpu-7.8.9-py3-none-any.whl",
        "airflow_provider_tpu-7.8.9.tar.gz",
    }
    with zipfile.ZipFile(copy / "dist" / "airflow_provider_tpu-7.8.9-py3-none-any.whl") as wheel:
        metadata = wheel.read("airflow_provider_tpu-7.8.9.dist-info/METADATA").decode()
    assert "Project-URL: Source, https://github.com/some-team/airflow-tpu\n" in metadata
    again = run(copy, "scripts/release", "7.8.9", "some-team")
    assert (again.returncode, "v7.8.9 has been released" in again.stderr) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "say the version and the owner"),
        (("v1", "team"), "v1 is no version such as 0.2.0"),
        (("1.0.0", "a/b"), "a/b is no name"),
    ],
)
def test_what_is_no_release_is_refused(copy: Path, arguments: tuple[str, ...], reason: str) -> None:
    """A wrong argument is named, and nothing is written."""
    done = run(copy, "scripts/release", *arguments)
    assert (done.returncode, reason in done.stderr) == (1, True)
    assert run(copy, "git", "tag").stdout == ""


def test_what_is_not_committed_is_not_released(copy: Path) -> None:
    """A changed file stops it."""
    (copy / "README.md").write_text("other", encoding="utf-8")
    done = run(copy, "scripts/release", "7.8.9", "some-team")
    assert (done.returncode, "not everything is committed" in done.stderr) == (1, True)
