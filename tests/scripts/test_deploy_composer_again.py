# SPDX-License-Identifier: Apache-2.0
"""Deployment to Cloud Composer, twice and against each documented answer; a stand-in answers for Google."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.scripts.google_cli import EMPTY, State

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
CLI = Path(__file__).with_name("google_cli.py")
PROJECT = (
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "requirements-composer.txt",
    "requirements-dev.txt",
)
RESTARTS = "gcloud composer environments update"


@dataclass(frozen=True)
class Deployment:
    """A clone with a commit, and a Google of its own.

    :param folder: everything of it.
    """

    folder: Path

    @property
    def clone(self) -> Path:
        """The working tree."""
        return self.folder / "clone"

    @property
    def state(self) -> State:
        """What Google has."""
        found: State = json.loads((self.folder / "google.json").read_text(encoding="utf-8"))
        return found

    def change(self, **parts: object) -> None:
        """Change what Google has."""
        (self.folder / "google.json").write_text(json.dumps({**self.state, **parts}), encoding="utf-8")

    def git(self, *arguments: str) -> None:
        """Run git in the clone, at a second of its own."""
        identity = ["-c", "user.name=Anna", "-c", "user.email=anna@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=self.clone, check=True, capture_output=True)

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Run the script; nothing of the real gcloud is on its path."""
        self.change(calls=[])
        environment = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "VENV": str(self.folder),
            "TMPDIR": str(self.folder),
        }
        command = ["scripts/deploy-composer", "--grant", "../grant.yaml", *options, "my-env", "us-central1"]
        return subprocess.run(command, cwd=self.clone, env=environment, capture_output=True, text=True, check=False)

    def calls(self, start: str) -> list[str]:
        """Calls of the last run that begin so."""
        return [call for call in self.state["calls"] if call.startswith(start)]


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    """An environment that has nothing of ours yet, but things of other people."""
    found = Deployment(tmp_path)
    found.clone.mkdir()
    for name in PROJECT:
        shutil.copy(ROOT / name, found.clone / name)
    for name in ("scripts", "dags", "include/catalogue", "include/remote"):
        shutil.copytree(ROOT / name, found.clone / name, ignore=shutil.ignore_patterns("__pycache__"))
    package = found.clone / "plugins" / "airflow_tpu"
    package.mkdir(parents=True)
    shutil.copy(ROOT / "plugins" / "airflow_tpu" / "__init__.py", package)
    (tmp_path / "google.json").write_text(json.dumps(EMPTY), encoding="utf-8")
    shutil.copy(ROOT / "include" / "grants" / "local.yaml", tmp_path / "grant.yaml")
    (tmp_path / "bin").mkdir()
    for name in ("gcloud", "uv"):
        program = tmp_path / "bin" / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -SE {CLI} {tmp_path}/google.json {name} "$@"\n')
        program.chmod(0o755)
    found.git("init", "--quiet")
    found.git("add", ".")
    found.git("commit", "--quiet", "--message", "First")
    return found


def test_the_second_deployment_changes_nothing_and_restarts_nothing(deployment: Deployment) -> None:
    """What is there stays: no wheel, no upload, no update, no run; files are compared by their content."""
    first = deployment.run()
    assert first.returncode == 0, first.stderr
    assert len(deployment.calls(RESTARTS)) == 2
    assert len(deployment.calls("uv publish")) == 1
    second = deployment.run()
    assert second.returncode == 0, second.stderr
    for start in (RESTARTS, "uv publish", "uv build", "gcloud composer environments run"):
        assert deployment.calls(start) == []
    assert all("--checksums-only" in call for call in deployment.calls("gcloud storage rsync"))
    assert len(deployment.calls("gcloud storage")) == 4


def test_what_other_people_have_installed_stays(deployment: Deployment) -> None:
    """Packages and options that are not ours are neither removed nor changed."""
    assert deployment.run().returncode == 0
    state = deployment.state
    assert state["packages"]["pandas"] == "==2.3.0"
    assert state["packages"].keys() == {"pandas", "asyncssh", "google-cloud-tpu", "airflow-provider-tpu"}
    assert state["options"]["core-parallelism"] == "8"


def test_each_change_of_the_package_has_a_version_of_its_own(deployment: Deployment) -> None:
    """The version comes from the commit: a change of what runs is deployed, one of a page not; a tag is a release."""
    assert deployment.run().returncode == 0
    (deployment.clone / "README.md").write_text("# Another\n", encoding="utf-8")
    deployment.git("commit", "--quiet", "--all", "--message", "Page")
    assert deployment.run().returncode == 0
    assert deployment.calls(RESTARTS) == []
    (deployment.clone / "plugins" / "airflow_tpu" / "new.py").write_text("", encoding="utf-8")
    deployment.git("add", ".")
    environment = "2031-01-02T03:04:05+00:00"
    subprocess.run(
        ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "--quiet", "--message", "Code"],
        cwd=deployment.clone,
        check=True,
        env={**os.environ, "GIT_COMMITTER_DATE": environment},
    )
    assert deployment.run().returncode == 0
    assert deployment.state["packages"]["airflow-provider-tpu"] == "==0.1.0.dev20310102030405"
    deployment.git("tag", "v0.1.0")
    assert deployment.run().returncode == 0
    assert deployment.state["packages"]["airflow-provider-tpu"] == "==0.1.0"


def test_changes_that_are_not_committed_are_not_deployed(deployment: Deployment) -> None:
    """A version that comes from git cannot name them: nothing is asked of the environment."""
    (deployment.clone / "plugins" / "airflow_tpu" / "__init__.py").write_text('__version__ = "0.1.0"\n# mine\n')
    refused = deployment.run()
    assert refused.returncode == 1
    assert "plugins/airflow_tpu/__init__.py" in refused.stderr
    assert deployment.calls("gcloud composer") == []


def test_a_longer_grant_is_one_copy(deployment: Deployment) -> None:
    """The grant is an object that the option names: neither wheel nor restart."""
    assert deployment.run().returncode == 0
    option = deployment.state["options"]["airflow_tpu-grant"]
    assert option == "gs://env-bucket/dags/tpu/include/grants/grant.yaml"
    assert deployment.run("--files-only").returncode == 0
    assert deployment.calls("gcloud storage cp ../grant.yaml") == [f"gcloud storage cp ../grant.yaml {option}"]
    assert deployment.calls(RESTARTS) == []


def test_the_check_knows_every_package_of_the_environment(deployment: Deployment) -> None:
    """The environment itself says what is installed; Composer's own builds count as the release they are made from."""
    assert deployment.run().returncode == 0
    (compiled,) = deployment.calls("uv pip compile")
    known = re.search(r"--constraint (\S+)", compiled)
    assert known is not None
    lines = (deployment.clone / known[1]).read_text(encoding="utf-8").splitlines()
    assert lines == ["apache-airflow==3.3.1", "protobuf==6.33.5"]


def test_a_secrets_backend_of_somebody_stays(deployment: Deployment) -> None:
    """Connections may be in it, so it is set only where there is none."""
    deployment.change(options={"secrets-backend": "my.Backend"})
    assert deployment.run().returncode == 0
    assert deployment.state["options"]["secrets-backend"] == "my.Backend"


def test_the_token_is_in_no_argument_and_no_output(deployment: Deployment) -> None:
    """What uploads the wheel gets it through its environment."""
    done = deployment.run()
    assert "secret-token" not in done.stdout + done.stderr + " ".join(deployment.state["calls"])


def test_the_answer_that_nothing_changes_is_no_error(deployment: Deployment) -> None:
    """If Composer counts two spellings as the same, the deployment goes on with the next step."""
    text = "ERROR: (gcloud.composer.environments.update) INVALID_ARGUMENT: No change in configuration. Must specify ..."
    deployment.change(answers=[{"call": RESTARTS, "text": text}])
    done = deployment.run()
    assert done.returncode == 0, done.stderr
    assert "it is so already" in done.stdout
    assert len(deployment.calls("gcloud storage")) == 4


def test_an_upload_that_was_overtaken_is_no_error(deployment: Deployment) -> None:
    """A colleague has uploaded the same commit between the look and the upload."""
    text = "error: Upload failed with status code 400 Bad Request. Server says: 400 File already exists."
    deployment.change(answers=[{"call": "uv publish", "text": text}])
    assert deployment.run().returncode == 0


@pytest.mark.parametrize(
    ("call", "text", "said"),
    [
        (
            "gcloud composer environments describe",
            "ERROR: (gcloud.composer.environments.describe) PERMISSION_DENIED: The caller does not have permission",
            "roles/composer.environmentAndStorageObjectAdmin on my-project",
        ),
        (
            "gcloud composer environments describe",
            "ERROR: (gcloud.composer.environments.describe) NOT_FOUND: Requested entity was not found.",
            "the environment my-env in us-central1, or the repository airflow-tpu",
        ),
        (
            "gcloud artifacts versions describe",
            "ERROR: (gcloud.artifacts.versions.describe) PERMISSION_DENIED: Permission denied",
            "roles/artifactregistry.writer",
        ),
        (
            RESTARTS,
            "ERROR: (gcloud.composer.environments.update) RESOURCE_EXHAUSTED: Quota exceeded for quota metric 'Reads'",
            "a quota of the project my-project is used up",
        ),
        (
            RESTARTS,
            "ERROR: (gcloud.composer.environments.update) FAILED_PRECONDITION: the environment is being updated",
            "gcloud composer operations list --locations us-central1",
        ),
        (
            RESTARTS,
            "ERROR: (gcloud.composer.environments.update) Error updating [e]: Operation [o] failed: Failed to install "
            "PyPI packages. pandas 1.1.5 has requirement numpy",
            "the environment continues with those it had",
        ),
    ],
)
def test_what_google_refuses_is_explained_and_can_be_repeated(
    deployment: Deployment, call: str, text: str, said: str
) -> None:
    """Google's own answer, what it means, what to do; the same command completes what is left once that is done."""
    deployment.change(answers=[{"call": call, "text": text}])
    refused = deployment.run()
    assert refused.returncode == 1
    assert text in refused.stderr
    assert said in refused.stderr
    assert "run the same command again" in refused.stderr
    assert deployment.calls("gcloud storage") == []
    deployment.change(answers=[])
    assert deployment.run().returncode == 0
    assert deployment.state["packages"].keys() >= {"airflow-provider-tpu"}
    assert "airflow_tpu-grant" in deployment.state["options"]


def test_what_the_machine_lacks_is_said_at_once(deployment: Deployment) -> None:
    """Grant and account are missing: both are named before anything is asked of the environment."""
    (deployment.folder / "grant.yaml").unlink()
    deployment.change(answers=[{"call": "gcloud auth list", "text": ""}])
    refused = deployment.run()
    assert refused.returncode == 1
    assert "airflow-tpu grant import" in refused.stderr
    assert "gcloud auth login" in refused.stderr
    assert deployment.calls("gcloud composer") == []
