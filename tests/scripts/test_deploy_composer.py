# SPDX-License-Identifier: Apache-2.0
"""Deployment to Cloud Composer, as far as it goes without Google: what it would run, what it refuses, what resolves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "composer-3-airflow-3.3.1-build.0"
GRANT = ("--grant", "include/grants/local.yaml")


def deploy(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the script with this environment's uv."""
    environment = {**os.environ, "VENV": str(Path(sys.executable).parents[1])}
    command = ["scripts/deploy-composer", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def commands(*arguments: str) -> list[str]:
    """The commands that a dry run prints."""
    done = deploy("--dry-run", *GRANT, *arguments)
    assert done.returncode == 0, done.stderr
    return [line.removeprefix("+ ") for line in done.stderr.splitlines() if line.startswith("+ ")]


def test_dry_run_prints_every_command_in_order() -> None:
    """Resolve, wheel, upload, install, settings, files, smoke run; each call of Composer names project and location."""
    printed = commands("--project", "p-1", "my-env", "us-central1")
    steps = [
        "pip compile",
        "uv build",
        "publish",
        "--update-pypi-package",
        "--update-airflow-configs",
        "rsync",
        "trigger",
    ]
    found = [next(number for number, line in enumerate(printed) if step in line) for step in steps]
    assert found == sorted(found)
    composer = [line for line in printed if line.startswith("gcloud composer")]
    assert len(composer) == 4
    assert all("my-env --project p-1 --location us-central1" in line for line in composer)
    assert not any("plugins" in line for line in printed if "gs://" in line)


def test_words_are_quoted_as_a_shell_needs_them() -> None:
    """A printed command can be pasted: the JSON of the smoke run is one word."""
    (trigger,) = (line for line in commands("my-env", "us-central1") if "dags trigger" in line)
    assert trigger.endswith('-- tpu_train --conf \'{"script": "hello.py"}\'')


def test_a_longer_grant_is_copied_alone() -> None:
    """With --files-only nothing is built, installed, set or triggered."""
    printed = commands("--files-only", "my-env", "us-central1")
    assert [line.split()[:3] for line in printed] == [
        ["gcloud", "storage", verb] for verb in ("rsync", "rsync", "cp", "cp")
    ]


def test_smoke_run_can_be_left_out() -> None:
    """With --no-smoke nothing is triggered."""
    assert not any("trigger" in line for line in commands("--no-smoke", "my-env", "us-central1"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((*GRANT, "my-env"), "name the environment and its location"),
        ((*GRANT, "my-env", "us-central1", "--imgae", "x"), "unknown option --imgae"),
        ((*GRANT, "my-env", "us-central1", "--image"), "--image needs a value"),
        ((*GRANT, "--image", "composer-2", "my-env", "us-central1"), f"Known: {IMAGE}"),
        (("--grant", "include/grants/none.yaml", "my-env", "us-central1"), "airflow-tpu grant import LETTER.txt"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_run(arguments: tuple[str, ...], said: str) -> None:
    """A wrong word, an unknown image and a missing grant end the script with the way out."""
    done = deploy("--dry-run", *arguments)
    assert done.returncode == 1
    assert said in done.stderr
    assert "+ gcloud" not in done.stderr


def test_requirements_pin_nothing_that_composer_brings() -> None:
    """What the image has keeps the image's version."""
    lines = (ROOT / "requirements-composer.txt").read_text().splitlines()
    wanted = [line for line in lines if line and not line.startswith("#")]
    assert not any("airflow" in line or "==" in line for line in wanted)


@pytest.mark.slow
def test_requirements_resolve_against_the_published_packages_of_the_image(tmp_path: Path) -> None:
    """The wheel's own requirements and Composer's fit together, with a Google provider older than ours."""
    uv = Path(sys.executable).with_name("uv")
    command = [
        str(uv) if uv.exists() else str(shutil.which("uv")),
        "pip",
        "compile",
        "--quiet",
        "--python-version",
        "3.11",
    ]
    command += ["--constraint", f"scripts/composer/{IMAGE}.txt", "--output-file", str(tmp_path / "resolved.txt")]
    subprocess.run([*command, "pyproject.toml", "requirements-composer.txt"], cwd=ROOT, check=True)
    resolved = (tmp_path / "resolved.txt").read_text().splitlines()
    assert "apache-airflow==3.3.1" in resolved
    (google,) = (line for line in resolved if line.startswith("apache-airflow-providers-google=="))
    assert tuple(map(int, google.rpartition("==")[2].split("."))) < (22, 8, 0)
