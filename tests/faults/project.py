# SPDX-License-Identifier: Apache-2.0
"""One project in virtual time: the cloud, the bucket, the DAG runs and the processes that work for them."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from google.cloud import tpu_v2

from airflow_tpu.clients.tpu_messages import to_queued_view, to_view
from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.core.ledger.events import opened_path
from airflow_tpu.core.run.run_record import RUN_RECORD_FORM, RunRecord
from airflow_tpu.core.tpu.labels import RunKey, incarnation_of, run_of, token_of
from airflow_tpu.core.tpu.spec import Phase
from airflow_tpu.lifecycle.ends.incarnation_end import noted_ends
from localcloud.rules.errors import CloudError
from localcloud.rules.settings import Latencies
from localcloud.tpu_api.dispatcher import CallDispatcher
from localcloud.virtual_cloud import make_virtual_cloud
from tests.airflow_tpu.identities import AIRFLOW
from tests.airflow_tpu.shipped import GENERATIONS
from tests.faults.virtual_context import BUCKET, EXPECTED, ZONE, VirtualContext
from tests.faults.virtual_processes import Process
from tests.faults.virtual_wire import VirtualBucket, VirtualChannel, VirtualStorage

PARENT = f"projects/local-project/locations/{ZONE}"
DEVICES = 2
"""What the grant has: one less than there are runs."""

RUNS = tuple(RunKey(AIRFLOW, "tpu_train", f"run {number}") for number in range(DEVICES + 1))
REAL = Latencies(
    registering=2.0, waiting=30.0, creating=40.0, failing=70.0, deleting=20.0, suspending=10.0, changing=5.0
)
"""Seconds as Google needs them."""

_DEAD = frozenset({Phase.LOST, Phase.FAILED, Phase.DELETING})
_KIND = Catalogue.load(Path(__file__).resolve().parents[2] / "include" / "catalogue").types["v2-8"]
GRANT = Grant.parse(
    {
        "project_id": "local-project",
        "project_number": "100000000001",
        "start": "2026-01-01",
        "timezone": "UTC",
        "days": 3650,
        "allowances": [{"count": DEVICES, "unit": "devices", "tier": "spot", "type": "v2-8", "zone": ZONE}],
        "bucket": BUCKET,
        "prefix": "trc",
    },
    GENERATIONS,
)


@dataclass(frozen=True)
class Found:
    """What there was when a process began.

    :param facts: incarnations that had been READY, or had ended, and were not closed.
    :param alive: TPUs that lived.
    """

    facts: frozenset[str]
    alive: frozenset[str]


@dataclass(frozen=True)
class Living:
    """A TPU that lives or is on its way, a request and its node counted once."""

    node_id: str
    run: str
    late: bool


class Project:
    """Everything there is; each method is one thing that may happen.

    :ivar processes: those that have not ended.
    :ivar states: of the DAG runs; empty when Airflow no longer knows one.
    :ivar leases: every lease ever taken, oldest first.
    :ivar late: nodes whose create arrived after their attempt had been overtaken or its run had ended: no API can
        hold such a call back, and the books may have been closed before it. They are deleted all the same.
    :ivar noted: nodes whose end is, or once was, in a lease.
    :ivar unbooked: nodes deleted by a process that died, or was overtaken by another, before it could note so in the
        lease. If nobody had seen such a TPU READY it counts nothing: this is all that the ledger may lose.
    :ivar preempted: nodes that Google has taken back, perhaps between our look and our delete.
    :ivar vanished: nodes that a person deleted.
    :ivar trail: what happened, for the reader of a failure.
    """

    def __init__(self) -> None:
        self.cloud = make_virtual_cloud(latencies=REAL)
        self.bucket = VirtualBucket()
        self.processes: list[Process] = []
        self.states = dict.fromkeys(RUNS, "running")
        self.runs: list[RunRecord] = []
        self.late: set[str] = set()
        self.vanished: set[str] = set()
        self.preempted: set[str] = set()
        self.noted: set[str] = set()
        self.unbooked: set[str] = set()
        self._deleters: dict[Process, set[str]] = {}
        self._found: dict[Process, Found] = {}
        self._held: set[RunKey] = set()
        self._reserved: dict[str, dt.datetime] = {}
        self.closed_at: dict[str, float] = {}
        self.trail: list[str] = []
        self._desk = CallDispatcher(self.cloud.service, self.cloud.meter.calls)
        self.colleague = f"{RUNS[0].name}-999"
        self._settle_colleague()

    def _settle_colleague(self) -> None:
        kind = {"accelerator_type": "v2-8", "runtime_version": _KIND.default_runtime}
        node = {**kind, "labels": {"airflow-tpu-run": RUNS[0].digest}}
        self.cloud.call("Tpu/CreateNode", tpu_v2.CreateNodeRequest(parent=PARENT, node_id=self.colleague, node=node))
        self.cloud.pass_time(60.0)

    # -- processes -------------------------------------------------------------------------------------------------

    def start(self, title: str, body: Callable[[VirtualContext], object]) -> Process:
        """Begin a process; it stops before its first request."""
        process = Process(title, self.cloud.clock)
        channel = VirtualChannel(process, self._desk, partial(self._arrives, process))
        virtual = VirtualContext(process, channel, VirtualStorage(process, self.bucket), GRANT)
        process.start(lambda: body(virtual))
        self.processes.append(process)
        self._found[process] = Found(self._facts(), frozenset(one.node_id for one in self.living() if not one.late))
        return process

    def go(self, process: Process, steps: int = 1) -> None:
        """Let a process send so many requests, as long as it does not sleep."""
        for _ in range(steps):
            if process.ended or process.asleep:
                break
            self.trail.append(f"{self.cloud.clock.monotonic():8.1f}  {process.title}: {process.at}")
            process.go()
            self._note(process)
            self.check()
        if process.ended and process in self.processes:
            self._bury(process)

    def _bury(self, process: Process) -> None:
        self.processes.remove(process)
        self.trail.append(f"{self.cloud.clock.monotonic():8.1f}  {process.title} ends: {process.error!r}")
        if process.error is not None and not isinstance(process.error, EXPECTED):
            raise AssertionError(f"{process.title} failed in a way it never should") from process.error

    def kill(self, process: Process) -> None:
        """End a process where it is, as SIGKILL does."""
        self.trail.append(f"{self.cloud.clock.monotonic():8.1f}  {process.title} is killed before {process.at}")
        process.kill()
        self.processes.remove(process)
        del self._found[process]
        self.unbooked |= self._deleters.pop(process, set()) - self.closed_at.keys() - self.noted

    def wait(self, seconds: float) -> None:
        """Let time pass without a turn for any process."""
        self.trail.append(f"{self.cloud.clock.monotonic():8.1f}  {seconds:.0f} s pass")
        self.cloud.pass_time(seconds)
        self.check()

    def together(self, seconds: float) -> None:
        """Let time pass while all processes work in turn."""
        end = self.cloud.clock.monotonic() + seconds
        while True:
            while awake := [process for process in self.processes if not process.asleep]:
                for process in awake:
                    self.go(process)
            now = self.cloud.clock.monotonic()
            if now >= end:
                return
            wakes = [process.wakes_at for process in self.processes if process.wakes_at is not None]
            self.cloud.pass_time(min([end, *wakes]) - now)

    def state_of(self, dag_id: str, run_id: str) -> str | None:
        """State of a DAG run at this moment, as Airflow would tell it."""
        return self.states[RunKey(AIRFLOW, dag_id, run_id)]

    # -- what is known at any moment -------------------------------------------------------------------------------

    def record(self, key: RunKey) -> RunRecord | None:
        """The lease object as it is."""
        found = self.bucket.objects.get(f"trc/leases/{key.name}.json")
        return RUN_RECORD_FORM.from_json(json.loads(found[1])) if found else None

    def _facts(self) -> frozenset[str]:
        """Incarnations of which a lease knows something that the ledger is still to be told."""
        lives = [life for key in RUNS if (record := self.record(key)) is not None for life in record.lives.items()]
        return frozenset(node_id for node_id, life in lives if life.ready_at or life.ended_at) - self.closed_at.keys()

    def _check_order(self, writer: Process) -> None:
        """What a process has found when it began is closed before its lease goes, and dead before its chips do.

        :raises AssertionError: a lease was given back before the ledger was closed, or chips before their TPU was gone.
        """
        found = self._found[writer]
        held = {key for key in RUNS if self.record(key) is not None}
        for key in self._held - held:
            lost = {name for name in found.facts if name.startswith(f"{key.name}-")} - self.closed_at.keys()
            assert not lost, self.story(f"{writer.title} gave the lease back before it closed {lost}")
        reserved = {entry["run"]: dt.datetime.fromisoformat(entry["expires_at"]) for entry in self._reservations()}
        now = self.cloud.clock.now()
        for name in [name for name, until in self._reserved.items() if name not in reserved and until > now]:
            alive = {one.node_id for one in self.living() if one.node_id.startswith(f"{name}-")} & found.alive
            assert not alive, self.story(f"{writer.title} gave the chips of {alive} back")
        self._held, self._reserved = held, reserved

    def _reservations(self) -> list[dict[str, Any]]:
        text = self.bucket.objects.get("airflow-tpu-shared/local-project/reservations.json", (0, '{"entries": []}'))[1]
        entries: list[dict[str, Any]] = json.loads(text)["entries"]
        return entries

    def _note(self, writer: Process) -> None:
        for key in RUNS:
            record = self.record(key)
            if record is not None and record.lease.token not in {known.lease.token for known in self.runs}:
                self.runs.append(record)
            self.noted |= {end.node_id for end in noted_ends(record)}
        closed = {name.split("/")[-2] for name in self.bucket.objects if name.endswith("/closed.json")}
        for node_id in closed - self.closed_at.keys():
            self.closed_at[node_id] = self.cloud.clock.monotonic()
            deleters = [process for process in self.processes if node_id in self._deleters.get(process, ())]
            if deleters and writer not in deleters and node_id not in self.noted:
                self.unbooked.add(node_id)
        self._check_order(writer)

    def _arrives(self, process: Process, method: str, request: Any) -> None:
        if method.startswith("Delete"):
            self._deleters.setdefault(process, set()).add(request.name.rpartition("/")[2])
        if method == "CreateNode":
            self._created(request.node_id, dict(request.node.labels))
        elif method == "CreateQueuedResource":
            spec = request.queued_resource.tpu.node_spec[0]
            self._created(spec.node_id, dict(spec.node.labels))

    def _created(self, node_id: str, labels: dict[str, str]) -> None:
        key = next(key for key in RUNS if key.digest == run_of(labels))
        record = self.record(key)
        current = None if record is None else (record.lease.token, record.incarnation)
        is_over = record is None or record.lease.expires_at <= self.cloud.clock.now() or self.states[key] != "running"
        mine = record is not None and record.lease.token == token_of(labels)
        assert not mine or (record and record.incarnation >= (incarnation_of(labels) or 0)), self.story(
            f"no lease names {node_id}"
        )
        assert f"trc/{opened_path(node_id)}" in self.bucket.objects, self.story(f"{node_id} is not in the ledger")
        if is_over or current != (token_of(labels), incarnation_of(labels)):
            self.late.add(node_id)

    def living(self) -> list[Living]:
        """Every TPU of ours that lives or is on its way."""
        state = self.cloud.state
        nodes = [to_view(record.view()) for record in state.nodes.records.values()]
        queued = [to_queued_view(record.view()) for record in state.queued.records.values()]
        found = {item.node_id: run_of(item.labels) for item in nodes if item.phase not in _DEAD}
        found |= {item.queued_id: run_of(item.labels) for item in queued if item.phase not in _DEAD}
        return [Living(node_id, run, node_id in self.late) for node_id, run in found.items() if run is not None]

    def check(self) -> None:
        """What holds at every moment.

        :raises AssertionError: with everything that happened.
        """
        timely = [one for one in self.living() if not one.late]
        for key in RUNS:
            mine = [one.node_id for one in timely if one.run == key.digest]
            assert len(mine) <= 1, self.story(f"{key.run_id} has {mine}")
        assert len(timely) <= DEVICES, self.story(f"more than the grant has: {[one.node_id for one in timely]}")
        theirs = self.cloud.state.nodes.records.get(f"{PARENT}/nodes/{self.colleague}")
        state = None if theirs is None else theirs.state
        assert state == tpu_v2.Node.State.READY, self.story(f"a colleague's node is {state}")

    def story(self, what: str) -> str:
        """A failure with its history."""
        return "\n".join([what, *self.trail[-400:]])

    # -- what fate does --------------------------------------------------------------------------------------------

    def preempt(self, which: int, notice: float) -> None:
        """Google takes a node of ours back."""
        if (record := self._victim(which)) is not None:
            self.trail.append(f"{self.cloud.clock.monotonic():8.1f}  {record.where.id} is preempted")
            self.preempted.add(record.where.id)
            try:
                self.cloud.state.shutdown.preempt(record, notice)
            except CloudError:
                self.trail.append("          but it was not running")

    def vanish(self, which: int) -> None:
        """A person deletes a node of ours."""
        if (record := self._victim(which)) is not None:
            self.trail.append(f"{self.cloud.clock.monotonic():8.1f}  {record.where.id} vanishes")
            self.vanished.add(record.where.id)
            self.cloud.state.shutdown.vanish(record)

    def _victim(self, which: int) -> Any:
        ours = [record for record in self.cloud.state.nodes.records.values() if run_of(record.labels)]
        return ours[which % len(ours)] if ours else None

    def fault(self, point: str, times: int = 1, match: dict[str, str] | None = None, **params: Any) -> None:
        """Something goes wrong the next time."""
        self.trail.append(f"{self.cloud.clock.monotonic():8.1f}  fault: {point} {match} {params}")
        self.cloud.faults.add({"point": point, "match": match or {}, "times": times, "params": params})
