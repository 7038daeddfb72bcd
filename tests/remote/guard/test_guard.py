# SPDX-License-Identifier: Apache-2.0
"""A9: whatever has become of Airflow, a TPU ends its run, saves what there is and gives itself back."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from google.cloud import tpu_v2
from google.cloud.storage import Bucket

from airflow_tpu import protocol
from localcloud.server import LocalCloudConfig
from localcloud.testing import BackgroundCloud, eventually, storage_bucket, tpu_client
from localcloud.virtual_cloud import PARENT, queued_resource, spot_node
from tests.remote.vm import RUN, Machine, named, processes_with

BUCKET = "trc-local"
PREFIX = "runs/run/attempt-1"
NODE = f"{PARENT}/nodes/forgotten"
QUEUED = f"{PARENT}/queuedResources/forgotten"
NOBODY = "http://127.0.0.1:9"  # the discard port: nothing listens there
TIMEOUT = 90.0
WRITE = "echo some output > $TRC_OUTPUT_DIR/model; echo ready"
DEAF = f"trap '' TERM; {WRITE}; until [ -e $GO ]; do sleep 0.05; done"
EVERYTHING = {"output/model", "log.txt", "manifest.json"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundCloud]:
    """A local cloud; what stands for the forgotten TPU VM is a machine beside it, so that it survives its deletion."""
    config = LocalCloudConfig(tmp_path_factory.mktemp("cloud"), tier="inprocess", buckets={BUCKET: "US-CENTRAL1"})
    with BackgroundCloud(config) as running:
        yield running


@pytest.fixture
def cloud(running: BackgroundCloud) -> Iterator[BackgroundCloud]:
    """The same with one READY node, and an empty bucket."""
    for blob in bucket(running).list_blobs():
        blob.delete()
    request = tpu_v2.CreateNodeRequest(parent=PARENT, node_id="forgotten", node=spot_node())
    tpu_client(running.endpoints).create_node(request, timeout=10)
    eventually(lambda: nodes(running), lambda found: found.get("forgotten") == "READY", TIMEOUT)
    yield running
    running.cloud.faults.clear()
    running.call(running.cloud.state.clear)
    eventually(lambda: nodes(running), lambda found: not found, TIMEOUT)


def nodes(cloud: BackgroundCloud) -> dict[str, str]:
    """State of every node by its id."""
    return {row["name"].rpartition("/")[2]: row["state"] for row in cloud.snapshot()["nodes"]}


def bucket(cloud: BackgroundCloud) -> Bucket:
    """The bucket, by Google's own client."""
    return storage_bucket(cloud.endpoints.storage_api_endpoint, BUCKET)


def saved(cloud: BackgroundCloud) -> dict[str, bytes]:
    """Everything below the attempt's place in the bucket."""
    blobs = bucket(cloud).list_blobs(prefix=f"{PREFIX}/")
    return {blob.name.removeprefix(f"{PREFIX}/"): blob.download_as_bytes() for blob in blobs}


def surroundings(cloud: BackgroundCloud) -> dict[str, str]:
    """What the login of a TPU VM finds in its environment."""
    return {
        "STORAGE_EMULATOR_HOST": cloud.endpoints.storage_api_endpoint,
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": cloud.endpoints.tpu_rest_endpoint,
    }


def forget(machine: Machine, cloud: BackgroundCloud, script: str = "sleep 1000", **changes: Any) -> None:
    """Start a run whose deadline has passed when it begins, and never come back."""
    login = {**surroundings(cloud), **changes.pop("login", {})}
    fields: dict[str, Any] = {
        "deadline": time.time(),
        "abandon_secs": 0.1,
        "own_resource": NODE,
        "artifacts_uri": f"gs://{BUCKET}/{PREFIX}",
        "grace_secs": 0.2,
    }
    answer = machine.start("sh", "-c", script, login=login, **{**fields, **changes})
    assert answer["type"] == protocol.STARTED


def forget_later(machine: Machine, cloud: BackgroundCloud, script: str, **changes: Any) -> None:
    """Start a run with all the time in the world, wait until it is ready."""
    forget(machine, cloud, script, deadline=time.time() + 36000.0, **changes)
    text_in_log(machine, "ready")


@contextlib.contextmanager
def deadline_passes(machine: Machine, cloud: BackgroundCloud) -> Iterator[None]:
    """From now on a guard sees that the deadline is over, at an instant that a test can choose."""
    path = machine.attempt() / protocol.JOB_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), "deadline": time.time()}))
    environment = machine.environment(**surroundings(cloud))
    with subprocess.Popen(machine.command("guard", *named(RUN)), env=environment) as guard:
        try:
            yield
        finally:  # or a test that fails waits for it
            guard.kill()


def switched_off(machine: Machine) -> list[str]:
    """Wait until the machine has been told to shut down."""
    return eventually(lambda: machine.switched_off, bool, TIMEOUT)


def text_in_log(machine: Machine, text: str) -> str:
    """Wait until the run's log has a text; return the log."""
    return eventually(lambda: machine.log().decode(), lambda log: text in log, TIMEOUT)


def test_a_forgotten_run_is_ended_saved_and_given_back(oldest_machine: Machine, cloud: BackgroundCloud) -> None:
    """Output, log and manifest are in the bucket when the node is deleted, and the log there says what was done."""
    forget_later(oldest_machine, cloud, f"{WRITE}; sleep 1000")
    with deadline_passes(oldest_machine, cloud):
        eventually(lambda: nodes(cloud), lambda found: found == {}, TIMEOUT)
    found = saved(cloud)
    assert set(found) == EVERYTHING
    manifest = json.loads(found["manifest.json"])
    assert [file["path"] for file in manifest["files"]] == ["log.txt", "output/model"]
    assert (manifest["failed"], manifest["skipped"]) == ([], [])
    assert f"uploading the output and the log, then deleting {NODE}" in found["log.txt"].decode()
    assert oldest_machine.result()["stopped"] is True


def test_a_run_leaves_its_own_guard_behind(machine: Machine, cloud: BackgroundCloud) -> None:
    """Nothing but the start is needed: the run ends at its deadline, and a while later the node is deleted."""
    forget(machine, cloud)
    eventually(lambda: nodes(cloud), lambda found: found == {}, TIMEOUT)
    assert machine.result()["deadline"] is True
    assert {"log.txt", "manifest.json"} <= set(saved(cloud))


def test_a_queued_resource_is_deleted_with_its_node(machine: Machine, cloud: BackgroundCloud) -> None:
    """An ACTIVE request is deleted by force: deleting the node alone would leave a dead request that holds quota."""
    request = tpu_v2.CreateQueuedResourceRequest(
        parent=PARENT, queued_resource_id="forgotten", queued_resource=queued_resource("asked")
    )
    tpu_client(cloud.endpoints).create_queued_resource(request, timeout=10)
    eventually(lambda: nodes(cloud), lambda found: found.get("asked") == "READY", TIMEOUT)
    forget(machine, cloud, own_resource=QUEUED)
    eventually(lambda: nodes(cloud), lambda found: set(found) == {"forgotten"}, TIMEOUT)
    eventually(lambda: cloud.snapshot()["queued_resources"], lambda found: found == [], TIMEOUT)


def test_a_run_that_nobody_collected_is_given_back(machine: Machine, cloud: BackgroundCloud) -> None:
    """The supervisor has long left with a good result; everything is saved and the node deleted all the same."""
    forget_later(machine, cloud, WRITE)
    assert machine.result()["exit_code"] == 0
    with deadline_passes(machine, cloud):
        eventually(lambda: nodes(cloud), lambda found: found == {}, TIMEOUT)
    assert set(saved(cloud)) == EVERYTHING


def test_a_killed_supervisor_changes_nothing(machine: Machine, cloud: BackgroundCloud) -> None:
    """Memory ran out and took the supervisor: its orphaned script is ended, and the node goes all the same."""
    forget_later(machine, cloud, DEAF, environment={"GO": "/nowhere", "MINE": str(machine.home)})
    os.kill(machine.recorded()["supervisor_pid"], signal.SIGKILL)
    assert processes_with(f"MINE={machine.home}") != []
    with deadline_passes(machine, cloud):
        eventually(lambda: nodes(cloud), lambda found: found == {}, TIMEOUT)
    assert processes_with(f"MINE={machine.home}") == []
    assert set(saved(cloud)) == EVERYTHING


def test_a_machine_that_outlives_its_node_is_shut_down(machine: Machine, cloud: BackgroundCloud) -> None:
    """The API has accepted the delete and yet the machine is there: it is switched off."""
    forget(machine, cloud)
    assert switched_off(machine) == ["-h now"]
    eventually(lambda: nodes(cloud), lambda found: found == {}, TIMEOUT)
    assert "the delete was accepted, but this machine is still here" in machine.log().decode()


def test_an_account_that_may_not_delete_shuts_down(machine: Machine, cloud: BackgroundCloud) -> None:
    """403 is not tried again: the machine is switched off, with sudo if needed, after everything has been saved."""
    cloud.add_fault(
        "tpu.call", {"method": "DeleteNode", "transport": "rest"}, code=7, message="tpu.nodes.delete denied"
    )
    forget(machine, cloud)
    assert switched_off(machine) == ["-h now"]
    assert (machine.home / "asked-sudo").exists() is (os.geteuid() != 0)
    assert "could not be deleted from here (403 tpu.nodes.delete denied): shutting the machine down" in text_in_log(
        machine, "shutting"
    )
    assert "manifest.json" in saved(cloud)
    assert nodes(cloud) == {"forgotten": "READY"}


def test_short_trouble_is_tried_again(machine: Machine, cloud: BackgroundCloud) -> None:
    """503 to the delete is worth another try, and a lost answer too: the second call finds the operation or nothing."""
    match = {"method": "DeleteNode", "transport": "rest"}
    cloud.add_fault("tpu.call", match, code=14)
    cloud.add_fault("tpu.call", match, action="lose-response")
    forget(machine, cloud)
    eventually(lambda: nodes(cloud), lambda found: found == {}, TIMEOUT)
    assert cloud.cloud.faults.unused() == []


@pytest.mark.parametrize(
    "login",
    [
        {"CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": NOBODY},
        {"CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": "", "GCE_METADATA_HOST": NOBODY.removeprefix("http://")},
        {"CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": "tpu.example.com"},
    ],
    ids=["unreachable", "no token", "no address"],
)
def test_an_api_that_cannot_be_asked_ends_in_a_shutdown(
    machine: Machine, cloud: BackgroundCloud, login: Mapping[str, str]
) -> None:
    """No answer, no service account, an endpoint that is none: the machine is switched off."""
    forget(machine, cloud, login=dict(login))
    assert switched_off(machine) == ["-h now"]


def test_a_bucket_that_refuses_does_not_keep_the_tpu(machine: Machine, cloud: BackgroundCloud) -> None:
    """What cannot be saved is reported; the node is deleted all the same, since it costs more every minute."""
    cloud.cloud.faults.add({"point": "gcs.request", "match": {}, "times": 1000, "params": {"action": "403"}})
    forget(machine, cloud)
    eventually(lambda: nodes(cloud), lambda found: found == {}, TIMEOUT)
    log = text_in_log(machine, "could not be uploaded")
    assert "the output could not be uploaded, trying 3 times in all: 403" in log


def test_what_fails_altogether_is_tried_again(machine: Machine, cloud: BackgroundCloud) -> None:
    """Neither the delete nor the shutdown works: both are tried again as long as the machine is there."""
    switch = machine.home / "bin" / "shutdown"
    switch.write_text(switch.read_text() + "exit 1\n")
    forget(machine, cloud, login={"CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": NOBODY})
    eventually(lambda: machine.switched_off, lambda calls: len(calls) >= 2, TIMEOUT)
    assert "trying both again later" in text_in_log(machine, "again later")


def test_an_airflow_that_comes_back_keeps_its_tpu(machine: Machine, cloud: BackgroundCloud, tmp_path: Path) -> None:
    """Airflow comes back while the guard saves, with more time: all is saved, and the TPU is left to Airflow."""
    go = tmp_path / "go"
    forget_later(machine, cloud, DEAF, grace_secs=600.0, environment={"GO": str(go)})
    with deadline_passes(machine, cloud):
        text_in_log(machine, "uploading the output")
        assert machine.status()["state"] == "running"
        # Without it the guard would be at work again 0.1 s later, however slow this machine is.
        machine.ask("extend", *named(RUN), "--deadline", str(time.time() + 36000.0))
        go.touch()
        text_in_log(machine, "Airflow is back: keeping the TPU")
        assert set(saved(cloud)) == EVERYTHING
        assert nodes(cloud) == {"forgotten": "READY"}
