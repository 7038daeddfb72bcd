# SPDX-License-Identifier: Apache-2.0
"""The package as people get it: an sdist, the wheel made of it, an environment that has only that wheel of ours."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PARSE = """
import json
from airflow.dag_processing.dagbag import DagBag
from airflow_tpu import settings
bag = DagBag()
folders = [str(settings.include_dir()), str(settings.remote_dir())]
print(json.dumps([bag.import_errors, sorted(bag.dags), folders]))
"""


@dataclass(frozen=True)
class Installed:
    """An environment.

    :param venv: its folder.
    :param home: an Airflow home, empty at first.
    """

    venv: Path
    home: Path

    @property
    def package(self) -> Path:
        """Where the wheel was unpacked to."""
        (found,) = self.venv.glob("lib/python*/site-packages/airflow_tpu")
        return found

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run one of its programs, far from the checkout."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PYTHON"))}
        environment = {**kept, "AIRFLOW_HOME": str(self.home), "PYTHONDONTWRITEBYTECODE": "1", **variables}
        program = str(self.venv / "bin" / command[0])
        line = [program, *command[1:]]
        return subprocess.run(line, cwd=self.home, env=environment, capture_output=True, text=True, check=False)

    def content(self) -> dict[str, str]:
        """Digest of each file of the package."""
        files = [path for path in self.package.rglob("*") if path.is_file() and path.suffix != ".pyc"]
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def built(source: Path, target: str, folder: Path) -> Path:
    """Build one distribution from a folder as pip would."""
    build = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(folder)]
    subprocess.run(build, cwd=source, check=True, capture_output=True)
    (found,) = folder.iterdir()
    return found


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel of the working tree, and the one of its sdist."""
    folder = tmp_path_factory.mktemp("distributions")
    with tarfile.open(built(ROOT, "sdist", folder / "sdist")) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (source,) = (folder / "unpacked").iterdir()
    return built(ROOT, "wheel", folder / "direct"), built(source, "wheel", folder / "wheel")


@pytest.fixture(scope="module")
def installed(wheels: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """An environment with the wheel; what it depends on is lent by the environment of this test."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    (site / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    beside = Path(sys.executable).with_name("uv")
    uv = str(beside) if beside.exists() else str(shutil.which("uv"))
    python = str(folder / "venv" / "bin" / "python")
    line = [uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", python, str(wheels[1])]
    subprocess.run(line, check=True)
    (folder / "home").mkdir()
    return Installed(folder / "venv", folder / "home")


def test_the_sdist_builds_the_same_wheel(wheels: tuple[Path, Path]) -> None:
    """Nothing that the wheel needs is missing from the sdist, and a build can be repeated byte by byte."""
    direct, from_sdist = wheels
    assert direct.name == from_sdist.name
    assert direct.read_bytes() == from_sdist.read_bytes()


@pytest.mark.slow
def test_no_grant_is_written_into_the_package(installed: Installed) -> None:
    """Without a project of its own an Airflow refuses to import a letter, and says what makes one."""
    before = installed.content()
    letter = installed.home / "LETTER.txt"
    letter.write_text("5 on-demand Cloud TPU v2-8 device(s) in zone us-central1-f for 30 days", encoding="utf-8")
    facts = ["--project-id", "my-tpu-project", "--project-number", "123456789012", "--bucket", "my-tpu-bucket"]
    facts += ["--start", "2026-09-03", "--yes"]
    refused = installed.run("airflow-tpu", "grant", "import", str(letter), *facts)
    assert refused.returncode == 1
    assert "airflow-tpu init DIR makes a project" in refused.stderr
    assert installed.content() == before


@pytest.mark.slow
def test_a_project_is_made_and_parsed(installed: Installed) -> None:
    """``airflow-tpu init`` writes DAG files that parse there; the program on the TPU VM stays that of the package."""
    before = installed.content()
    project = installed.home / "project"
    made = installed.run("airflow-tpu", "init", str(project))
    assert made.returncode == 0, made.stderr
    variables = dict(
        line.removeprefix("export ").split("=", 1)
        for line in (project / "airflow.env").read_text(encoding="utf-8").splitlines()
    )
    parsed = installed.run("python", "-c", PARSE, **variables)
    assert parsed.returncode == 0, parsed.stderr[-3000:]
    errors, dags, folders = json.loads(parsed.stdout.splitlines()[-1])
    assert errors == {}
    assert {path.stem for path in (ROOT / "dags").glob("*.py")} == set(dags)
    assert folders == [str(project / "include"), str(installed.package / "_include" / "remote")]
    assert installed.content() == before
