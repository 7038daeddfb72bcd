# SPDX-License-Identifier: Apache-2.0
"""A9: a TPU that no run reaches gives itself back, and a machine that was rebooted gets its guard again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from google.cloud import tpu_v2

from airflow_tpu import protocol
from airflow_tpu.core.tpu.resource_name import ResourceName
from airflow_tpu.core.tpu.startup_script import StartupScript
from localcloud.server import LocalCloudConfig
from localcloud.testing import BackgroundCloud, eventually, tpu_client
from localcloud.virtual_cloud import PARENT, queued_resource, spot_node
from tests.remote.guard.test_guard import BUCKET, EVERYTHING, PREFIX, TIMEOUT, WRITE, nodes, saved, surroundings
from tests.remote.guard.test_guard import text_in_log as logged
from tests.remote.vm import REPOSITORY, Machine, until

NODE = ResourceName.parse(f"{PARENT}/nodes/forgotten")
NEVER = 4102444800.0  # the year 2100
LONG_AGO = 1e9
Boot = Callable[..., None]


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundCloud]:
    """A local cloud; what stands for a forgotten TPU VM is a machine beside it, so that it survives its deletion."""
    config = LocalCloudConfig(tmp_path_factory.mktemp("cloud"), tier="inprocess", buckets={BUCKET: "US-CENTRAL1"})
    with BackgroundCloud(config) as running:
        yield running


@pytest.fixture
def node(cloud: BackgroundCloud) -> Iterator[None]:
    """One READY node."""
    request = tpu_v2.CreateNodeRequest(parent=PARENT, node_id=NODE.id, node=spot_node())
    tpu_client(cloud.endpoints).create_node(request, timeout=10)
    eventually(lambda: nodes(cloud), lambda found: found.get(NODE.id) == "READY", TIMEOUT)
    yield
    cloud.cloud.faults.clear()
    cloud.call(cloud.cloud.state.clear)
    eventually(lambda: nodes(cloud), lambda found: not found, TIMEOUT)


@pytest.fixture
def boot(machine: Machine, cloud: BackgroundCloud) -> Boot:
    """Run the startup script of the node, or of another resource, as the guest agent does."""
    script = machine.home / "startup-script"

    def run(deadline: float = NEVER, arrival_secs: float = 3600.0, resource: ResourceName = NODE) -> None:
        made = StartupScript.build(REPOSITORY / "include" / "remote")
        text = StartupScript(made.archive, arrival_secs).text(resource, datetime.fromtimestamp(deadline, UTC))
        script.write_text(text.replace("#!/usr/bin/env python3", f"#!{machine.python}"))
        script.chmod(0o755)
        agent = subprocess.run(
            [str(script)], env=machine.environment(**surroundings(cloud)), capture_output=True, timeout=TIMEOUT
        )
        assert (agent.returncode, agent.stderr) == (0, b"")

    return run


def guarding(machine: Machine) -> list[int]:
    """Processes that guard the run of the machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().decode().split("\0")
        except OSError:
            continue
        if "guard" in command and any(word.startswith(str(machine.home)) for word in command):
            found.append(int(path.parent.name))
    return found


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize("times", [{"deadline": LONG_AGO}, {"arrival_secs": 0.5}], ids=["deadline", "arrival"])
def test_node_that_no_run_reaches_is_deleted(cloud: BackgroundCloud, boot: Boot, times: dict[str, float]) -> None:
    """A node that was granted after its deadline goes at once, and one whose run does not arrive goes soon."""
    boot(**times)
    eventually(lambda: nodes(cloud), lambda found: found == {}, TIMEOUT)


def test_request_goes_with_its_node(cloud: BackgroundCloud, boot: Boot) -> None:
    """Of a queued resource the request is deleted: a dead one would hold its quota."""
    request = tpu_v2.CreateQueuedResourceRequest(
        parent=PARENT, queued_resource_id=NODE.id, queued_resource=queued_resource(NODE.id)
    )
    tpu_client(cloud.endpoints).create_queued_resource(request, timeout=10)
    eventually(lambda: nodes(cloud), lambda found: found.get(NODE.id) == "READY", TIMEOUT)
    boot(deadline=LONG_AGO, resource=NODE.queued)
    eventually(lambda: (nodes(cloud), cloud.snapshot()["queued_resources"]), lambda found: found == ({}, []), TIMEOUT)


@pytest.mark.usefixtures("node")
def test_account_that_may_not_delete_shuts_down(machine: Machine, cloud: BackgroundCloud, boot: Boot) -> None:
    """Without the right to delete the machine is switched off: it is charged no more."""
    cloud.add_fault("tpu.call", {"method": "DeleteNode", "transport": "rest"}, code=7, message="denied")
    boot(deadline=LONG_AGO)
    assert eventually(lambda: machine.switched_off, bool, TIMEOUT) == ["-h now"]


@pytest.mark.usefixtures("node")
def test_guard_comes_back_after_a_reboot(machine: Machine, cloud: BackgroundCloud, boot: Boot) -> None:
    """A reboot ends a run and its guard: the startup script starts the guard again, which saves and deletes."""
    installed(machine)
    job: dict[str, Any] = {"own_resource": str(NODE), "artifacts_uri": f"gs://{BUCKET}/{PREFIX}", "abandon_secs": 0.1}
    machine.start("sh", "-c", WRITE, login=surroundings(cloud), deadline=NEVER, grace_secs=0.2, **job)
    logged(machine, "ready")
    for pid in until(lambda: guarding(machine)):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not guarding(machine))
    deadline_has_passed(machine)
    boot(arrival_secs=0.0)
    eventually(lambda: nodes(cloud), lambda found: found == {}, TIMEOUT)
    assert set(saved(cloud)) == EVERYTHING


def installed(machine: Machine) -> None:
    """Put the runner where a session installs it."""
    place = machine.home / protocol.ROOT_DIR / protocol.RUNNER_DIR
    place.mkdir(parents=True)
    (place / "digest").symlink_to(machine.home / "runner")


def deadline_has_passed(machine: Machine) -> None:
    """Let the run's deadline be over, and its start be some minutes ago."""
    path = machine.attempt() / protocol.JOB_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), "deadline": time.time()}))
    os.utime(path, (LONG_AGO, LONG_AGO))


CHECK = """
import json, sys, time
from guard.boot_guard import BootGuard
guard = BootGuard("projects/p/locations/z/nodes/n", 5000.0, 3000.0)
print(json.dumps([guard.left(now) for now in {instants}]))
"""


def left(machine: Machine, *instants: float) -> list[float]:
    """Seconds until the TPU is given back, at some instants; its deadline is 5000, a run must arrive until 3000."""
    return list(json.loads(machine.evaluate(CHECK.format(instants=list(instants)))))


def test_time_that_is_left_without_a_run(oldest_machine: Machine) -> None:
    """Until a run arrives the earlier of the two ends counts, on the oldest image too."""
    assert left(oldest_machine, 1000.0, 3000.0, 9000.0) == [2000.0, 0.0, -6000.0]


def test_run_with_a_guard_of_its_own_is_left_alone(machine: Machine, cloud: BackgroundCloud) -> None:
    """While the run's guard lives nothing is given back from here, whatever the time."""
    machine.start("sleep", "1000", deadline=NEVER, own_resource=str(NODE), login=surroundings(cloud))
    os.utime(machine.attempt() / protocol.JOB_FILE, (LONG_AGO, LONG_AGO))
    until(lambda: guarding(machine))
    assert left(machine, NEVER + 1e6) == [60.0]


def test_guard_that_cannot_be_started_is_replaced(machine: Machine) -> None:
    """Without the runner's own guard the TPU goes some minutes after the later of deadline and last contact."""
    attempt = machine.home / protocol.ROOT_DIR / protocol.RUNS_DIR / "run" / "attempt-1"
    attempt.mkdir(parents=True)
    (attempt / protocol.CONTACT_FILE).touch()
    (attempt / protocol.JOB_FILE).write_text(json.dumps({"deadline": 5000.0, "own_resource": str(NODE)}))
    (attempt / protocol.DEADLINE_FILE).write_text(json.dumps({"deadline": 7000.0}))
    for name, at in ((protocol.JOB_FILE, 1000.0), (protocol.CONTACT_FILE, 1000.0)):
        os.utime(attempt / name, (at, at))
    assert left(machine, 1030.0, 6000.0, 7600.0) == [60.0, 1600.0, 0.0]
    os.utime(attempt / protocol.CONTACT_FILE, (7500.0, 7500.0))
    assert left(machine, 7600.0) == [500.0]
