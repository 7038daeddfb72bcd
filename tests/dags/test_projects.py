# SPDX-License-Identifier: Apache-2.0
"""Projects of the shapes that people bring, run by the command of their README through the whole pipeline."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_tpu import settings
from localcloud.testing import BackgroundCloud
from tests.airflow_tpu.git_server import commit, git, git_server
from tests.dags.evidence import names_left, objects

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PACKAGE = {
    "regnetish/__init__.py": "",
    "regnetish/models/__init__.py": "",
    "regnetish/models/net.py": "import twice\n\n\ndef width(n):\n    return twice.twice(n)\n",
    "regnetish/train.py": """
        import argparse, pathlib
        from .models.net import width
        parser = argparse.ArgumentParser()
        parser.add_argument("--seed", type=int)
        parser.add_argument("--out")
        found = parser.parse_args()
        pathlib.Path("model.h5").write_text(str(width(found.seed)))
        pathlib.Path(found.out, "figure.txt").write_text(pathlib.Path("configs/base.yaml").read_text())
    """,
    "train.sh": "python3 -m regnetish.train \\\n  --seed $1 --out $TRC_OUTPUT_DIR\n",
    "fails.py": "print('epoch 1'); raise SystemExit(3)\n",
    "configs/base.yaml": "depth: 3",
    "requirements.txt": "-r requirements/base.txt\n",
    "requirements/base.txt": "./wheels/twice-1.0-py3-none-any.whl\n",
}
WHEEL = {
    "twice.py": "def twice(n):\n    return 2 * n\n",
    "twice-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: twice\nVersion: 1.0\n",
    "twice-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "twice-1.0.dist-info/RECORD": "",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder ``repo`` below an include directory with what ours has, beside a project of 40 MB."""
    ours = settings.include_dir()
    train = tmp_path / "include" / "train"
    (train / "repo" / "wheels").mkdir(parents=True)
    for name in ("remote", "grants", "catalogue"):
        (tmp_path / "include" / name).symlink_to(ours / name)
    for name, content in PACKAGE.items():
        (train / "repo" / name).parent.mkdir(parents=True, exist_ok=True)
        lines = content.removeprefix("\n").splitlines()
        (train / "repo" / name).write_text("\n".join(line.removeprefix("        ") for line in lines) + "\n")
    with zipfile.ZipFile(train / "repo" / "wheels" / "twice-1.0-py3-none-any.whl", "w") as wheel:
        for name, content in WHEEL.items():
            wheel.writestr(name, content)
    (train / "other").mkdir()
    with (train / "other" / "data.bin").open("wb") as file:
        file.truncate(40 * 1024 * 1024)
    monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__INCLUDE_DIR", str(tmp_path / "include"))
    return train / "repo"


@pytest.mark.parametrize(
    "command",
    [
        "python -m regnetish.train \\\n  --seed $TRC_SEED --out=$TRC_OUTPUT_DIR",
        "bash train.sh $TRC_SEED",
        "python -m regnetish.train --seed $TRC_SEED --out $TRC_OUTPUT_DIR |& tee log.txt",
    ],
)
@pytest.mark.usefixtures("project")
def test_a_command_of_a_readme_trains(cloud: BackgroundCloud, run_dag: Callable[..., Any], command: str) -> None:
    """Its packages are installed, its folder is the working directory, and what it leaves there is kept."""
    form = {"source": "repo", "command": command, "requirements": "requirements.txt", "seed": 21}
    form["outputs"] = "figure.txt, *.h5"
    outcome = run_dag(**form, provisioning="node")
    assert outcome.state == "success", outcome.log[-4000:]
    stored = {name.partition("/attempt-1/")[2]: body for name, body in objects(cloud).items() if "/attempt-1/" in name}
    assert stored["output/figure.txt"] == b"depth: 3\n"
    assert stored["working-dir/model.h5"] == b"42"
    assert "the script has left" in outcome.log
    assert names_left(cloud) == []


@pytest.mark.usefixtures("project")
def test_a_training_that_fails_before_a_pipe_has_failed(cloud: BackgroundCloud, run_dag: Callable[..., Any]) -> None:
    """The last command of the pipe does not hide it, and what the pipe has written is kept."""
    outcome = run_dag(source="repo", command="python fails.py |& tee log.txt", provisioning="node")
    assert (outcome.state, outcome.tasks["train"], outcome.tries["train"]) == ("failed", "failed", 1)
    assert any(name.endswith("/working-dir/log.txt") for name in objects(cloud))
    assert names_left(cloud) == []


@pytest.mark.usefixtures("project")
def test_a_declared_output_that_is_missing_fails_the_run(cloud: BackgroundCloud, run_dag: Callable[..., Any]) -> None:
    """Also one in a bucket, although the command ended well; what it did write is kept."""
    command = "bash train.sh $TRC_SEED"
    form = {"source": "repo", "command": command, "requirements": "requirements.txt", "provisioning": "node"}
    outcome = run_dag(**form, outputs="*.h5\nruns/**\ngs://trc-local/exports/*")
    assert (outcome.state, outcome.tasks["train"], outcome.tries["train"]) == ("failed", "failed", 1)
    assert "did not write what it declared: runs/**, gs://trc-local/exports/*" in outcome.log
    assert any(name.endswith("/working-dir/model.h5") for name in objects(cloud))
    assert names_left(cloud) == []


@pytest.mark.usefixtures("project")
def test_what_a_command_starts_is_looked_for_first(cloud: BackgroundCloud, run_dag: Callable[..., Any]) -> None:
    """A module that is not there is refused by the first task, and nothing is created."""
    outcome = run_dag(source="repo", command="python -m regnetish.trian", provisioning="node")
    assert outcome.tasks["check_grant"] == "failed"
    assert "command = 'python -m regnetish.trian'" in outcome.log
    assert cloud.snapshot()["nodes"] == []


def test_a_framework_that_hangs_ends_the_run(
    cloud: BackgroundCloud, run_dag: Callable[..., Any], project: Path
) -> None:
    """The smoke step names it before the command begins, and the TPU is not kept for hours."""
    (project / "tensorflow").mkdir()
    (project / "tensorflow" / "__init__.py").write_text("import threading\nthreading.Event().wait()\n")
    form = {"source": "repo", "command": "python fails.py", "framework": "tensorflow 2.18.0"}
    outcome = run_dag(**form, provisioning="node")
    assert (outcome.state, outcome.tasks["train"], outcome.tries["train"]) == ("failed", "failed", 1)
    log = next(body.decode() for name, body in objects(cloud).items() if name.endswith("/attempt-1/log.txt"))
    assert "smoke: tensorflow was not imported in 25 s" in log
    assert "epoch 1" not in log
    assert "the framework does not work on this TPU VM" in outcome.log
    assert names_left(cloud) == []


MOVES = """
    import json, os, pathlib, subprocess
    print("revision", os.environ["TRC_REVISION"], sorted(os.listdir(".")))
    pathlib.Path(os.environ["TRC_OUTPUT_DIR"], "revision").write_text(os.environ["TRC_REVISION"])
"""


def test_a_private_repository_trains_one_commit(
    cloud: BackgroundCloud, run_dag: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only its files travel; the commit is known to script, ledger and bucket, and the token to nobody."""
    token = "t0ken-0f-the-git-server"
    served = tmp_path / "served" / "repo"
    lines = "\n".join(line.removeprefix("    ") for line in MOVES.splitlines())
    first = commit(served, {"project/train.py": lines, "README.md": "x", "project/.hidden": "x"})
    with git_server(tmp_path / "served") as server:
        server.logins = (f"git:{token}",)
        connection = {"conn_type": "git", "host": f"{server.url}/repo", "password": token}
        monkeypatch.setenv("AIRFLOW_CONN_GIT_REPO", json.dumps(connection))
        source = f"{server.url}/repo@main#subdirectory=project"
        form = {"source": source, "source_conn_id": "git_repo", "command": "python train.py"}
        outcome = run_dag(**form, provisioning="node")
    assert outcome.state == "success", outcome.log[-4000:]
    assert f"revision {first} ['train.py', 'trc']" in outcome.log
    stored = {name: body.decode(errors="replace") for name, body in objects(cloud).items()}
    assert next(body for name, body in stored.items() if name.endswith("/attempt-1/output/revision")) == first
    assert (
        json.loads(next(body for name, body in stored.items() if name.endswith("/attempt-1/manifest.json")))["revision"]
        == first
    )
    for kind in ("/opened.json", "/sources/"):
        assert first in next(body for name, body in stored.items() if kind in f"/{name}")
    assert git(served, "rev-parse", "main") == first
    shown = [outcome.log, json.dumps(outcome.xcom), *stored.values()]
    assert [text for text in shown if token in text or server.authorizations[-1] in text] == []
    assert names_left(cloud) == []
