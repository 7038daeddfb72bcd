# SPDX-License-Identifier: Apache-2.0
"""One DAG run as a person sees it, drives it through the REST API, and finds what it has left in the cloud."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote

import psutil
from google.cloud import tpu_v2

from airflow_tpu.core.run.run_record import RUN_RECORD_FORM
from airflow_tpu.core.tpu.labels import RunKey
from localcloud.testing import BackgroundCloud, eventually
from localcloud.tpu_api.audit import entries
from tests.airflow.stack import Stack
from tests.airflow_tpu.identities import AIRFLOW
from tests.compose.rest import Client
from tests.dags.evidence import BUCKET, bucket, check_span, ready_spans

TIMEOUT = 900.0
"""Seconds for whatever has to happen: many runs share two slow cores. Nothing waits that long when all is well."""
POLL = 2.0
"""Seconds between two looks: each is work for the api-server, and a dozen runs are looked at."""
OVER = ("success", "failed", "upstream_failed", "skipped", "removed")
SCRIPT = f"gs://{BUCKET}/scripts/steady.py"


@dataclass(frozen=True)
class TrainingRun:
    """A run of the training DAG, or of a variant of it.

    :param stack: the Airflow it runs in.
    :param client: a user.
    :param cloud: where its TPU is.
    :param dag: id of the DAG.
    :param name: id of the DAG run; also in the environment of its training, wherever that runs.
    """

    stack: Stack
    client: Client
    cloud: BackgroundCloud
    dag: str
    name: str

    # --- what a person does ---

    def trigger(self, **conf: Any) -> None:
        """Press Trigger, with some fields of the form filled in."""
        form = {"script": SCRIPT, "provisioning": "node", "zone": "us-central1-f", "tier": "spot"}
        form["environment"] = f"STORY={self.name}"
        body = {"dag_run_id": self.name, "logical_date": None, "conf": {**form, **conf}}
        self.client.call(f"/api/v2/dags/{self.dag}/dagRuns", body)

    def add_fault(self, point: str, match: dict[str, str], **params: Any) -> None:
        """Script a fault of the cloud for this run; that it has struck is seen at the end."""
        self.cloud.cloud.faults.add({"id": self.name, "point": point, "match": match, "times": 1, "params": params})

    def let_end(self) -> None:
        """Let the training come to its end by itself."""
        bucket(self.cloud).blob(f"go/{self.name}").upload_from_string("go")

    def mark(self, task: str, state: str) -> None:
        """Mark one task."""
        self.client.call(self._task_path(task), {"new_state": state}, "PATCH")

    def mark_run(self, state: str) -> None:
        """Mark the DAG run."""
        self.client.call(self.path, {"state": state}, "PATCH")

    def clear(self, task: str) -> list[str]:
        """Clear one task; returns what Airflow clears with it."""
        body = {"dry_run": False, "dag_run_id": self.name, "task_ids": [task], "only_failed": False}
        answer = self.client.call(f"/api/v2/dags/{self.dag}/clearTaskInstances", body)
        return sorted(item["task_id"] for item in answer["task_instances"])

    def pause(self, is_paused: bool) -> None:
        """Pause the DAG, or unpause it."""
        self.client.call(f"/api/v2/dags/{self.dag}", {"is_paused": is_paused}, "PATCH")

    def expire(self) -> None:
        """Let the run's lease have ended a minute ago, as if its deadline had passed."""
        blob = bucket(self.cloud).blob(f"airflow-tpu/leases/{self.key.name}.json")
        end = dt.datetime.now(dt.UTC) - dt.timedelta(minutes=1)
        record = RUN_RECORD_FORM.from_json(json.loads(blob.download_as_bytes()))
        blob.upload_from_string(RUN_RECORD_FORM.to_bytes(replace(record, lease=replace(record.lease, expires_at=end))))

    def reap(self) -> None:
        """Run the reaper: once for a TPU that is left, and once more for the books of one that is gone."""
        for number in (1, 2):
            reaper = replace(self, dag="tpu_reaper", name=f"{self.name}-{number}")
            self.client.call("/api/v2/dags/tpu_reaper/dagRuns", {"dag_run_id": reaper.name, "logical_date": None})
            assert reaper.until_over() == {"reap": "success"}
            eventually(self.resources, lambda found: not found, TIMEOUT, POLL)

    def asset_id(self, name: str) -> int:
        """Number of an asset in Airflow's metadata database."""
        found = self.client.call(f"/api/v2/assets?name_pattern={quote(name, safe='')}")["assets"]
        return int(next(item["id"] for item in found if item["name"] == name))

    def started_by(self, kind: str) -> TrainingRun:
        """Wait for a run of the same DAG that Airflow has started by itself, by the kind of run."""
        path = f"/api/v2/dags/{self.dag}/dagRuns?run_type={kind}"
        (found, *_) = eventually(lambda: self.client.call(path)["dag_runs"], bool, TIMEOUT, POLL)
        return replace(self, name=found["dag_run_id"])

    def delete(self) -> int:
        """Delete the DAG run; returns the status code of the answer."""
        return status_of(self.client, self.path, "DELETE")

    # --- what a person sees ---

    @property
    def path(self) -> str:
        """Of the DAG run in the REST API."""
        return f"/api/v2/dags/{self.dag}/dagRuns/{quote(self.name, safe='')}"

    @property
    def state(self) -> str:
        """Of the DAG run."""
        return str(self.client.call(self.path)["state"])

    def task(self, task: str) -> dict[str, Any]:
        """One task, with everything that Airflow says of it."""
        found: dict[str, Any] = self.client.call(self._task_path(task))
        return found

    def tasks(self) -> dict[str, str]:
        """State of every task."""
        found = self.client.call(f"{self.path}/taskInstances")["task_instances"]
        return {item["task_id"]: str(item["state"]) for item in found}

    def until(self, task: str, *states: str, tries: int = 1) -> dict[str, Any]:
        """Wait until a task is in one of some states, in its first or a later try."""
        return eventually(
            lambda: self.task(task),
            lambda found: found["state"] in states and found["try_number"] >= tries,
            TIMEOUT,
            POLL,
        )

    def until_process(self, task: str) -> int:
        """Wait until a task is running; returns the id of its process."""
        self.until(task, "running")
        return int(eventually(lambda: self.task(task)["pid"], lambda pid: pid is not None, TIMEOUT, POLL))

    def until_over(self) -> dict[str, str]:
        """Wait until the DAG run and all its tasks have ended; returns the tasks' states."""
        eventually(lambda: self.state, lambda state: state in ("success", "failed"), TIMEOUT, POLL)
        return eventually(self.tasks, lambda found: all(state in OVER for state in found.values()), TIMEOUT, POLL)

    def until_training(self, state: str, copies: int = 1) -> None:
        """Wait until the training steps, and its task is ``running``, or ``deferred`` and followed by a triggerer.

        :param copies: how many have been started by then.
        """
        eventually(lambda: len(self.starts()), lambda count: count >= copies, TIMEOUT, POLL)
        self.until("train", state)
        if state == "deferred":  # by a triggerer that has begun: before, there is nothing that Airflow could stop
            self.until_followed()

    def until_followed(self) -> None:
        """Wait until a triggerer has written a step of the training to the task's log."""
        eventually(lambda: self.log("train"), lambda log: " done" in log.partition("starting\n")[2], TIMEOUT, POLL)

    def triggerer(self, task: str = "train") -> str:
        """Name of the triggerer that runs the trigger of a task; empty while there is none."""
        return str((self.task(task)["triggerer_job"] or {}).get("hostname") or "")

    def mapped(self, task: str) -> list[str]:
        """State of each instance of a task in a mapped group, by index."""
        found = self.client.call(f"{self._task_path(task)}/listMapped")["task_instances"]
        return [str(item["state"]) for item in sorted(found, key=lambda item: int(item["map_index"]))]

    def log(self, task: str, tries: int = 1, of: int = -1) -> str:
        """The task's log, as the UI shows it.

        :param of: index of an instance in a mapped group.
        """
        options = f"full_content=true&map_index={of}"
        lines = self.client.call(f"{self._task_path(task)}/logs/{tries}?{options}")["content"]
        return "\n".join(line["event"] if isinstance(line, dict) else line for line in lines)

    # --- what is in the cloud ---

    @property
    def key(self) -> RunKey:
        """What every name is derived from."""
        return RunKey(AIRFLOW, self.dag, self.name)

    def starts(self) -> list[str]:
        """Every copy of the training that has ever begun."""
        names = (blob.name for blob in bucket(self.cloud).list_blobs(prefix=f"starts/{self.name}/"))
        return [name.rpartition("/")[2] for name in names]

    def steps(self) -> list[int]:
        """Numbers of the steps in the log that is kept beside the artifacts of the first attempt, in order."""
        name = f"airflow-tpu/runs/{self.key.name}/train/attempt-1/log.txt"
        return [
            int(number) for number in re.findall(r"step (\d+) done", bucket(self.cloud).blob(name).download_as_text())
        ]

    def alive(self) -> list[int]:
        """Processes of the training that live, on whichever TPU VM."""
        return [process.pid for process in psutil.process_iter() if self._trains(process)]

    def resources(self) -> list[str]:
        """Nodes and queued resources of this run that are there."""
        rows = self.cloud.snapshot()
        names = [row["name"].rpartition("/")[2] for kind in rows.values() for row in kind]
        return sorted(name for name in names if name.startswith(f"{self.key.name}-"))

    def is_ready(self) -> bool:
        """Whether a node of this run is READY."""
        nodes = self.cloud.snapshot()["nodes"]
        return any(row["state"] == "READY" for row in nodes if f"/{self.key.name}-" in row["name"])

    def deletes(self) -> dict[str, set[str]]:
        """Delete operations of each node or queued resource.

        A killed task and the teardown may ask in the same moment; the second then gets the operation of the first.
        """
        found: dict[str, set[str]] = {}
        for entry in entries(self.cloud.cloud.config.state_dir):
            payload = entry["protoPayload"]
            name = payload["resourceName"].rpartition("/")[2]
            if "operation" in entry and ".Delete" in payload["methodName"] and name.startswith(f"{self.key.name}-"):
                found.setdefault(name, set()).add(entry["operation"]["id"])
        return found

    def ledger(self) -> dict[str, dict[str, Any]]:
        """The *closed* event of each incarnation, by node; None while it is open."""
        found: dict[str, dict[str, Any]] = {}
        for blob in bucket(self.cloud).list_blobs():
            kind = blob.name.rpartition("/")[2]
            if "/ledger/" in f"/{blob.name}" and self.key.name in blob.name and kind in ("opened.json", "closed.json"):
                event = json.loads(blob.download_as_bytes())
                found.setdefault(event["node_id"], {}).update({kind.removesuffix(".json"): event})
        return found

    def assert_nothing_left(self) -> None:
        """No TPU, no process, each TPU deleted once, the ledger closed, and no second in it less than in the meter.

        A time of the API's own clock is exact to the second. A time that had to be observed may be later, by as long as
        no process was looking: that depends on the machine and on Airflow, not on the ledger.
        """
        assert eventually(self.resources, lambda found: not found, TIMEOUT, POLL) == []
        assert self.alive() == []
        assert self.name not in self.cloud.cloud.faults.unused()
        deletes = self.deletes()
        assert all(len(operations) == 1 for operations in deletes.values()), deletes
        ledger = self.ledger()
        assert all("closed" in events for events in ledger.values()), ledger
        for node, spans in ready_spans(self.cloud, ledger).items():
            check_span(ledger[node]["opened"], ledger[node]["closed"], spans)

    def _trains(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get("STORY") == self.name and "steady.py" in " ".join(process.cmdline())
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return False

    def _task_path(self, task: str) -> str:
        return f"{self.path}/taskInstances/{task}"


@contextmanager
def colleagues(run: TrainingRun, count: int) -> Iterator[None]:
    """Let other people have so many on-demand devices of the project."""
    node = {"accelerator_type": "v2-8", "runtime_version": "tpu-ubuntu2204-base"}
    parent, methods = "projects/local-project/locations/us-central1-f", run.cloud.cloud.service.methods
    names = [f"colleague-{run.name}-{number}" for number in range(count)]
    asked = [tpu_v2.CreateNodeRequest(parent=parent, node_id=name, node=node) for name in names]
    run.cloud.call(lambda: [methods["Tpu/CreateNode"](request) for request in asked])
    yield
    gone = [tpu_v2.DeleteNodeRequest(name=f"{parent}/nodes/{name}") for name in names]
    run.cloud.call(lambda: [methods["Tpu/DeleteNode"](request) for request in gone])


def ends_green(run: TrainingRun, copies: int = 1) -> None:
    """The training has come to its end and left nothing but its artifacts."""
    tasks = run.until_over()
    assert set(tasks.values()) == {"success"}, tasks
    assert run.state == "success"
    assert len(run.starts()) == copies
    run.assert_nothing_left()


def ends_red(run: TrainingRun) -> None:
    """The training has failed and left nothing, and only one copy of it ever ran."""
    tasks = run.until_over()
    assert (tasks["train"], tasks["copy"], tasks["delete"]) == ("failed", "upstream_failed", "success")
    assert run.state == "failed"
    assert len(run.starts()) == 1
    run.assert_nothing_left()


def status_of(client: Client, path: str, method: str, body: dict[str, Any] | None = None) -> int:
    """Status code of the answer to a call."""
    try:
        client.call(path, body, method)
    except HTTPError as error:
        return error.code
    except json.JSONDecodeError:
        return 204
    return 200


def refusal(run: TrainingRun, form: dict[str, Any]) -> str:
    """Why Airflow does not take what was filled into the form; empty if it does."""
    try:
        run.trigger(**form)
    except HTTPError as error:
        return str(json.load(error)["detail"])
    return ""
