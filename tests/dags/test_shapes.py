# SPDX-License-Identifier: Apache-2.0
"""Seven projects of the shapes that people bring run by the command of their README, each with another source.

They share one local cloud. The kinds of source times the shapes are compared without a TPU: what travels is the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_tpu import settings
from airflow_tpu.lifecycle.connections import Connections
from airflow_tpu.lifecycle.run_context import RunContext
from airflow_tpu.lifecycle.training.launch import build_bundle
from localcloud.server import LocalCloudConfig
from localcloud.testing import BackgroundCloud
from tests.airflow_tpu.cloud_env import KEY
from tests.airflow_tpu.git_server import GitServer, commit, git, git_server
from tests.dags.evidence import BUCKET, bucket, names_left, objects, upload
from tests.dags.shapes import ARCHIVE, FOLDER, GIT, SHAPES, Shape, archive, write

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TAG = "v1.0"


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory, private_key: str) -> Iterator[BackgroundCloud]:
    """One local cloud for all of them, with the data set that one of them reads."""
    config = LocalCloudConfig(state_dir=tmp_path_factory.mktemp("cloud"), buckets={BUCKET: "US-CENTRAL1"})
    with BackgroundCloud(config) as running, pytest.MonkeyPatch.context() as patch:
        ssh = {"conn_type": "ssh", "login": "trainer", "extra": {"private_key": private_key}}
        patch.setenv("AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT", json.dumps(running.endpoints.airflow_connection()))
        patch.setenv("AIRFLOW_CONN_TPU_SSH_DEFAULT", json.dumps(ssh))
        upload(running, "images/one", "x")
        yield running


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An include directory with each project, and beside it a repository that a script clones at a tag."""
    ours, base = settings.include_dir(), tmp_path_factory.mktemp("projects")
    (base / "include" / "train").mkdir(parents=True)
    for name in ("remote", "grants", "catalogue"):
        (base / "include" / name).symlink_to(ours / name)
    for name, shape in SHAPES.items():
        write(shape, base / "include" / "train" / name)
    cloned = base / "cloned"
    commit(cloned, {"train.py": "print('tagged')\n"})
    git(cloned, "tag", TAG)
    commit(cloned, {"train.py": "print('later')\n"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__AIRFLOW_TPU__INCLUDE_DIR", str(base / "include"))
        yield base


@pytest.fixture(scope="module")
def server(projects: Path) -> Iterator[GitServer]:
    """A git server with each project as a repository, below a folder of it."""
    for name in SHAPES:
        repository = projects / "served" / name
        (projects / "served").mkdir(exist_ok=True)
        git(projects, "init", "-q", str(repository))
        for path in sorted((projects / "include" / "train" / name).rglob("*")):
            if path.is_file():
                target = repository / "project" / path.relative_to(projects / "include" / "train" / name)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())
        commit(repository, {"README.md": "x"})
        git(repository, "tag", TAG)
    with git_server(projects / "served") as running:
        yield running


def source_of(name: str, kind: str, cloud: BackgroundCloud, projects: Path, server: GitServer) -> str:
    """What stands in the field *Project*."""
    if kind == GIT:
        return f"{server.url}/{name}@{TAG}#subdirectory=project"
    if kind == ARCHIVE:
        content = archive(projects / "include" / "train" / name)
        bucket(cloud).blob(f"sources/{name}.tar.gz").upload_from_string(content)
        return f"gs://{BUCKET}/sources/{name}.tar.gz"
    return name


def form_of(name: str, projects: Path) -> dict[str, str]:
    """The fields of the form beside the source."""
    form = dict(SHAPES[name].form)
    if name == "clones":
        form["environment"] = f"REPOSITORY=file://{projects / 'cloned'}"
    return form


def stored(cloud: BackgroundCloud, before: set[str]) -> dict[str, str]:
    """What the attempt of the last run has in the bucket."""
    found = {name: body for name, body in objects(cloud).items() if name not in before and "/attempt-1/" in name}
    return {name.partition("/attempt-1/")[2]: body.decode(errors="replace") for name, body in found.items()}


def check(shape: Shape, found: dict[str, str]) -> None:
    """What a run of the shape has left."""
    assert {name: found.get(name) for name in shape.stored} == dict(shape.stored), (sorted(found), found["log.txt"])
    if shape is SHAPES["configs"]:
        (name,) = [name for name in found if name.startswith("working-dir/workdirs/2")]
        assert found[name] == "mlp b16"
    if shape is SHAPES["notebook"]:
        cells = json.loads(found["output/train.ipynb"])["cells"]
        assert cells[-1]["outputs"][0]["text"] == ["rate 0.25\n"]


@pytest.mark.parametrize("name", SHAPES)
def test_a_project_runs_by_the_command_of_its_readme(
    name: str, cloud: BackgroundCloud, run_dag: Callable[..., Any], projects: Path, server: GitServer
) -> None:
    """Nothing in it is changed; a training that fails in front of ``tee`` has failed, and its output is kept."""
    shape = SHAPES[name]
    source = source_of(name, shape.source, cloud, projects, server)
    before = set(objects(cloud))
    outcome = run_dag(**{**form_of(name, projects), "source": source}, provisioning="node")
    expected = "failed" if name == "tee" else "success"
    found = stored(cloud, before)
    assert outcome.state == expected, found.get("log.txt", outcome.log)[-4000:]
    check(shape, found)
    assert json.loads(found["manifest.json"])["revision"] == revision(name, shape, server)
    assert names_left(cloud) == []


def revision(name: str, shape: Shape, server: GitServer) -> str:
    """The commit of a project in git, else what the form says."""
    if shape.source == GIT:
        return git(server.root / name, "rev-parse", TAG)
    return shape.form.get("revision", "")


@pytest.mark.parametrize("name", SHAPES)
def test_the_kind_of_source_makes_no_difference(
    name: str, cloud: BackgroundCloud, projects: Path, server: GitServer
) -> None:
    """A folder, an archive and a repository with the same files send the same files and the same command."""
    found = {}
    for kind in (FOLDER, ARCHIVE, GIT):
        form = {**form_of(name, projects), "source": source_of(name, kind, cloud, projects, server)}
        if kind == GIT:
            form.pop("revision", None)
        place = {"accelerator_type": "v2-8", "zone": "us-central1-f", "artifacts_uri": f"gs://{BUCKET}/runs"}
        bundle = build_bundle(RunContext(KEY, {"script": "", **form, **place}, Connections()))
        found[kind] = (bundle.sha256, bundle.program, bundle.requirements)
    assert len(set(found.values())) == 1, found
