# SPDX-License-Identifier: Apache-2.0
"""No secret leaves the process that reads it from the connection."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

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


TYPED = "typed-int0-the-f0rm"
GIVEN = 'g1ven-t0-the-scr1pt+/="x'
KEY_LINES = ("-----BEGIN K-----", "c2VjcmV0LWxpbmUtb25l", "bGluZS10d28tb2YtaXQ=", "-----END K-----")

TALKATIVE = (
    SCRIPT
    + """
import base64, hashlib, urllib.parse
token, key = os.environ["WANDB_API_KEY"], os.environ["SIGNING_KEY"]
os.write(1, token[:7].encode())
time.sleep(0.3)
os.write(1, token[7:].encode() + b"\\n")
print(key)
print([key], json.dumps(token), urllib.parse.quote(token))
print("Basic", base64.b64encode(("user:" + token).encode()).decode())
for line in key.splitlines():
    print("    " + line)
for value in (token, key):
    print("digest", hashlib.sha256(value.encode()).hexdigest())
os.system("test -n \\"$WANDB_API_KEY\\" && echo a child has it")
"""
)


def test_secrets_of_a_script_are_in_its_environment_and_nowhere_else(
    cloud: BackgroundCloud, run_dag: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The values arrive, and no database, log, command line, disk, XCom, record or artifact has them in any form."""
    monkeypatch.setenv("AIRFLOW_CONN_WANDB_DEFAULT", json.dumps({"conn_type": "generic", "password": GIVEN}))
    monkeypatch.setenv("AIRFLOW_VAR_SIGNING_KEY", "\n".join(KEY_LINES))
    monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__INLINE_SECONDS", "0")
    script = upload(cloud, "scripts/talkative.py", TALKATIVE)
    named = "WANDB_API_KEY = wandb_default.password\nSIGNING_KEY = variable:signing_key"
    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look_at_the_run, cloud)
        outcome = run_dag("tpu_train_deferring", VARIANTS, script=script, secrets=named, provisioning="node")
        seen = looking.result(30.0)
    assert outcome.state == "success", outcome.log[-4000:]
    for value in (GIVEN, "\n".join(KEY_LINES)):
        assert f"digest {hashlib.sha256(value.encode()).hexdigest()}" in outcome.log
    assert "a child has it" in outcome.log
    seen |= {
        "database": texts_of_database(),
        "log": [outcome.log],
        "xcom": [json.dumps(outcome.xcom)],
        "bucket": [body.decode(errors="replace") for body in objects(cloud).values()],
        "disks afterwards": files_below(cloud.cloud.config.state_dir / "vm"),
    }
    bits = base64.b64encode(f"user:{GIVEN}".encode()).decode()[8:-4]
    words = [GIVEN, json.dumps(GIVEN)[1:-1], quote(GIVEN), bits, *KEY_LINES[1:3]]
    assert {(place, word) for place, texts in seen.items() for text in texts for word in words if word in text} == set()


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("A_KEY = no_such.password", "A_KEY = no_such.password': there is no such connection"),
        ("A_KEY = variable:no_such", "A_KEY = variable:no_such': there is no such Variable"),
        ("A_KEY = tpu_ssh_default.extra.private_key", "is a connection of type ssh, which is for Airflow alone"),
        (f"A_KEY = {TYPED}", "the secret itself must not stand here"),
    ],
)
def test_a_secret_that_is_not_there_is_named_first(
    cloud: BackgroundCloud, run_dag: Run, named: str, words: str
) -> None:
    """The first task names it, nothing is created, and what was typed in place of a name is not repeated."""
    outcome = run_dag(secrets=named, provisioning="node")
    assert outcome.tasks["check_grant"] == "failed"
    assert words in outcome.log
    assert TYPED not in outcome.log
    assert cloud.snapshot()["nodes"] == []


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
