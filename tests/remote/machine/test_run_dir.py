# SPDX-License-Identifier: Apache-2.0
"""An attempt's own files carry their version; those of another release are left as they are, and the answer says so."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from airflow_tpu import protocol
from tests.remote.vm import RUN, Machine, named

COMMANDS = {
    "status": ("status", *named(RUN)),
    "follow": ("follow", *named(RUN)),
    "stop": ("stop", *named(RUN), "--grace", "0"),
    "push": ("push", *named(RUN), "--to", "gs://bucket/runs/one"),
    "extend": ("extend", *named(RUN), "--deadline", "4e9"),
}


def contents(attempt: Path) -> dict[str, bytes]:
    """Every file of ours."""
    return {path.name: path.read_bytes() for path in attempt.glob("*.json")}


def test_every_file_carries_its_version(machine: Machine) -> None:
    """Job, process, result and deadline are written with the version of this release, and answered without it."""
    result = machine.run("true", deadline=4e9)
    machine.ask(*COMMANDS["extend"][:-1], "5e9")
    found = {name: json.loads(content) for name, content in contents(machine.attempt()).items()}
    assert set(found) == {protocol.JOB_FILE, protocol.PID_FILE, protocol.EXIT_FILE, protocol.DEADLINE_FILE}
    assert {document["version"] for document in found.values()} == {protocol.FILES_VERSION}
    assert result["version"] == protocol.FILES_VERSION
    assert "version" not in machine.status()["result"]


@pytest.mark.parametrize("command", sorted(COMMANDS))
@pytest.mark.parametrize("version", [2, None])
def test_an_attempt_of_another_release_is_left_alone(machine: Machine, command: str, version: int | None) -> None:
    """No command touches an attempt that another release has started; the error names both versions."""
    machine.run("true")
    job = machine.attempt() / protocol.JOB_FILE
    document = {**json.loads(job.read_text()), "version": version}
    job.write_text(json.dumps({name: value for name, value in document.items() if value is not None}))
    contact = machine.attempt() / protocol.CONTACT_FILE
    os.utime(contact, (1000.0, 1000.0))
    before = contents(machine.attempt())
    answer = machine.ask(*COMMANDS[command])
    assert (answer["type"], answer["reason"]) == (protocol.ERROR, "UnknownRunVersion")
    assert answer["message"] == (
        f"job.json of attempt 1 of run has version {version}, this runner reads version 1; left as it is"
    )
    assert contents(machine.attempt()) == before
    assert contact.stat().st_mtime == 1000.0


def test_a_result_of_another_release_is_no_result(machine: Machine) -> None:
    """An exit.json of another version is neither taken for a result nor for a missing one."""
    machine.run("true")
    path = machine.attempt() / protocol.EXIT_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 2}))
    answer = machine.ask(*COMMANDS["status"])
    assert answer["message"].startswith("exit.json of attempt 1 of run has version 2")


FULL_DISK = """
import os, protocol
from machine.run_dir import RunDir
run = RunDir("run", 1)
run.reserve(protocol.MIRROR_FILE, protocol.STOP_REQUEST_FILE, protocol.STOP_FILE)
run.write(protocol.MIRROR_FILE, {"last_step": 0})
filler = os.open(str(run.path / "filler"), os.O_WRONLY | os.O_CREAT)
def fill():
    try:
        while True:
            os.write(filler, b"x" * 512)
    except OSError as error:
        print(error.errno)
fill()
found = []
for step in range(1, 6):
    run.write(protocol.MIRROR_FILE, {"last_step": step, "error": "x" * (600 * (step % 3))})
    found.append(run.read(protocol.MIRROR_FILE)["last_step"])
print(found)
for number in range(1, 4):
    run.write(protocol.STOP_REQUEST_FILE, {"grace_secs": number})
print(run.read(protocol.STOP_REQUEST_FILE))
run.request_stop()
print(run.stop_file.exists())
fill()
try:
    run.write(protocol.DELIVERED_FILE, {"offset": 1})
except OSError as error:
    print(error.errno)
"""


def test_what_is_reserved_is_written_on_a_full_disk(machine: Machine) -> None:
    """A command that fills the disk keeps no reserved file from being written, as often as it changes."""
    namespace = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    attempt = machine.attempt()
    attempt.mkdir(parents=True)
    mount = f"mount -t tmpfs -o size=96k none {attempt}"
    if shutil.which("unshare") is None or subprocess.run([*namespace, mount], check=False).returncode != 0:
        pytest.skip("no mount namespace here")
    (machine.home / "fill.py").write_text(FULL_DISK)
    script = f"{mount} && exec {machine.python} {machine.home}/fill.py"
    environment = machine.environment(PYTHONPATH=str(machine.home / "runner"))
    done = subprocess.run([*namespace, script], capture_output=True, env=environment, text=True, check=False)
    assert (done.stdout.splitlines(), done.stderr) == (
        ["28", "[1, 2, 3, 4, 5]", "{'grace_secs': 3}", "True", "28", "28"],
        "",
    )
