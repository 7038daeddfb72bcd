"""No secret leaves the process that reads it from the connection."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from localcloud.testing import BackgroundCloud, eventually
from localcloud.vm.progress import latest_step, paths_named
from tests.dags.evidence import objects, upload

pytestmark = pytest.mark.slow

Run = Callable[..., Any]
VARIANTS = Path(__file__).parent / "files" / "variants.py"
PLANTED = "pl4nted-passw0rd-0f-the-c0nnecti0n"

SCRIPT = """
import json, os, pathlib, sys, time
output = pathlib.Path(os.environ["TRC_OUTPUT_DIR"])
print("environment:", json.dumps(dict(os.environ)), flush=True)
print("command line:", sys.argv, flush=True)
(output / "progress.json").write_text('{"step": 1}')
while not (output / "seen").exists():
    time.sleep(0.05)
"""


def texts_of_database() -> list[str]:
    """Every value of every table of Airflow's metadata database."""
    with sqlite3.connect(Path(os.environ["AIRFLOW_HOME"], "airflow.db")) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return [str(row) for name in tables for row in database.execute(f'SELECT * FROM "{name}"')]


def command_lines() -> list[str]:
    """Command line of every process of this machine, those of TPU VMs included."""
    return [_read(path) for path in Path("/proc").glob("[0-9]*/cmdline")]


def files_below(directory: Path) -> list[str]:
    """Content of every file of every TPU VM."""
    # os.walk, not rglob: a run's directories come and go meanwhile, and rglob of Python 3.11 fails on that.
    paths = [Path(folder, name) for folder, _, names in os.walk(directory) for name in names]
    return [_read(path) for path in paths if path.is_file() and not path.is_symlink()]


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:  # the process or the file is gone
        return ""


def look_at_the_run(cloud: BackgroundCloud) -> dict[str, list[str]]:
    """What can be seen while the script runs; then let it end."""
    disks = cloud.cloud.config.state_dir / "vm"
    eventually(lambda: latest_step(disks), lambda step: step == 1)
    records = cloud.call(lambda: list(cloud.cloud.state.nodes.records.values()))
    seen = {
        "command lines": command_lines(),
        "disks": files_below(disks),
        "metadata": [f"{key}={value}" for record in records for key, value in record.template.metadata.items()],
        "labels": [str(dict(record.template.labels)) for record in records],
    }
    next(paths_named("progress.json", disks)).with_name("seen").touch()
    return seen


@pytest.fixture
def secrets(cloud: BackgroundCloud, monkeypatch: pytest.MonkeyPatch, private_key: str) -> list[str]:
    """The private key's own lines, and a password planted in both connections."""
    for name in ("AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT", "AIRFLOW_CONN_TPU_SSH_DEFAULT"):
        monkeypatch.setenv(name, json.dumps({**json.loads(os.environ[name]), "password": PLANTED}))
    # The first line is the same for every key of this kind, the host keys of TPU VMs included.
    return [*private_key.splitlines()[2:-1], PLANTED]


@pytest.mark.parametrize("inline", ["30", "0"], ids=["worker", "triggerer"])
def test_secrets_stay_in_their_connection(
    cloud: BackgroundCloud, run_dag: Run, monkeypatch: pytest.MonkeyPatch, secrets: list[str], inline: str
) -> None:
    """Neither database, logs, command lines, disks, metadata nor artifacts hold the key or a password."""
    monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__INLINE_SECONDS", inline)
    script = upload(cloud, "scripts/curious.py", SCRIPT)
    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look_at_the_run, cloud)
        outcome = run_dag("tpu_train_deferring", VARIANTS, script=script, provisioning="node")
        seen = looking.result(30.0)
    assert outcome.state == "success", outcome.log[-4000:]
    assert re.search(r"environment: .*TRC_OUTPUT_DIR", outcome.log)
    assert any("curious.py" in line for line in seen["command lines"])
    seen |= {
        "database": texts_of_database(),
        "log": [outcome.log],
        "xcom": [json.dumps(outcome.xcom)],
        "artifacts": [body.decode(errors="replace") for body in objects(cloud).values()],
    }
    assert any(outcome.run_id in text for text in seen["database"])
    assert {place for place, texts in seen.items() for text in texts if any(word in text for word in secrets)} == set()
    assert {line.split("=", 1)[0] for line in seen["metadata"]} == {"ssh-keys", "enable-oslogin", "startup-script"}


def test_search_would_find_a_secret(tmp_path: Path, secrets: list[str]) -> None:
    """The places are really looked into: what is planted there on purpose is found."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "id_ed25519").write_text("\n".join(secrets))
    assert all(word in text for text in files_below(tmp_path / "deep") for word in secrets)
    assert _read(Path("/proc/self/cmdline")) in command_lines()
