# SPDX-License-Identifier: Apache-2.0
"""Two Airflows work on one project and one grant: with one bucket and prefix, with two prefixes, with two buckets.

A history in virtual time is a list of choices which process continues by how many requests. Neither Airflow deletes
what the other has made, and in the end no more is alive than the grant has.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_tpu.core.ledger.events import Closed
from airflow_tpu.core.tpu.labels import RunKey, airflow_of
from airflow_tpu.lifecycle.reap import reap
from localcloud.tpu_api.dispatcher import CallDispatcher
from localcloud.virtual_cloud import VirtualCloud, make_virtual_cloud
from tests.airflow_tpu.identities import AIRFLOW, OTHER_AIRFLOW
from tests.faults import tasks
from tests.faults.project import DEVICES, GRANT, REAL
from tests.faults.virtual_context import EXPECTED, VirtualContext
from tests.faults.virtual_processes import Process
from tests.faults.virtual_wire import VirtualBucket, VirtualChannel, VirtualStorage

LAYOUTS = {
    "one bucket and prefix": (("trc-local", "trc"), ("trc-local", "trc")),
    "two prefixes": (("trc-local", "anna"), ("trc-local", "bert")),
    "two buckets": (("annas-bucket", "trc"), ("berts-bucket", "trc")),
}
SECONDS = 4 * 3600.0
"""How long a training would hold its TPU: longer than any history."""

AGES = 600.0
"""Seconds after which every create and every delete has come to its end."""

choices = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 25)), max_size=24)


@dataclass
class Twins:
    """The cloud, and two Airflows whose DAG runs have equal ids.

    :param layout: bucket and prefix of each.
    :param stale: for how many seconds the lists do not show what was created.
    """

    layout: str
    stale: float = 0.0
    cloud: VirtualCloud = field(default_factory=lambda: make_virtual_cloud(latencies=REAL))
    buckets: dict[str, VirtualBucket] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    errors: dict[str, BaseException | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.dispatcher = CallDispatcher(self.cloud.service, self.cloud.meter.calls)
        if self.stale:
            params = {"seconds": self.stale}
            self.cloud.faults.add({"point": "tpu.list", "match": {"event": "create"}, "times": 99, "params": params})

    def start(self, airflow: str, title: str, body: Any) -> Process:
        """Begin a process of one Airflow."""
        bucket, prefix = LAYOUTS[self.layout][airflow == OTHER_AIRFLOW]
        process = Process(f"{title} of {airflow}", self.cloud.clock)
        channel = VirtualChannel(process, self.dispatcher, partial(self._arrives, airflow))
        storage = VirtualStorage(process, self.buckets.setdefault(bucket, VirtualBucket()))
        virtual = VirtualContext(process, channel, storage, replace(GRANT, bucket=bucket, prefix=prefix))
        process.start(lambda: body(virtual))
        self.processes.append(process)
        return process

    def train(self, airflow: str, number: int, queued: bool) -> None:
        """Begin a DAG run: its lease, its TPU, its training."""
        key = RunKey(airflow, "nightly", f"scheduled__{number}")

        def run(at: VirtualContext) -> None:
            tasks.lease(at, key, queued)
            tasks.train(at, key, queued, SECONDS)

        self.start(airflow, f"run {number}", run)

    def _arrives(self, airflow: str, method: str, request: Any) -> None:
        """Note whose resource a delete is for.

        :raises AssertionError: it is the other one's.
        """
        if method in ("DeleteNode", "DeleteQueuedResource", "UpdateNode"):
            name = request.node.name if method == "UpdateNode" else request.name
            assert self.owner(name) in (airflow, None), f"{airflow} sends {method} for {name}"

    def owner(self, name: str) -> str | None:
        """Identity on a resource; None if there is no such resource."""
        node = self.cloud.state.nodes.records.get(name)
        queued = self.cloud.state.queued.records.get(name)
        if node is not None:
            return airflow_of(dict(node.labels))
        return None if queued is None else airflow_of(dict(queued.view().tpu.node_spec[0].node.labels))

    def go(self, process: Process, steps: int) -> None:
        """Let a process send so many requests."""
        for _ in range(steps):
            if process.ended or process.asleep:
                return
            process.go()

    def together(self, seconds: float) -> None:
        """Let time pass while all processes work in turn."""
        end = self.cloud.clock.monotonic() + seconds
        while True:
            while awake := [one for one in self.processes if not one.ended and not one.asleep]:
                for process in awake:
                    process.go()
            now = self.cloud.clock.monotonic()
            if now >= end:
                break
            wakes = [one.wakes_at for one in self.processes if not one.ended and one.wakes_at is not None]
            self.cloud.pass_time(min([end, *wakes]) - now)
        wrong = [one.error for one in self.processes if one.error is not None and not isinstance(one.error, EXPECTED)]
        assert not wrong, wrong

    def alive(self) -> set[str]:
        """Ids of what lives or is on its way."""
        state = self.cloud.state
        return {name.rpartition("/")[2] for name in (*state.nodes.records, *state.queued.records)}

    def stores(self, airflow: str) -> Any:
        """The stores of one Airflow, read without a turn for any process."""
        found: list[Any] = []
        process = self.start(airflow, "reader", lambda at: found.extend(at.grant.stores.ledger.events()))
        while not process.ended:
            process.go()
        self.processes.remove(process)
        return found

    def end(self) -> None:
        """Kill what is left, and let the reaper of each Airflow find all of its own runs over."""
        for process in self.processes:
            process.kill()
        self.processes.clear()
        for _ in range(2):
            for airflow in (AIRFLOW, OTHER_AIRFLOW):
                self.start(airflow, "reaper", lambda at, own=airflow: reap(at.grant, lambda *_: "failed", own))
            self.together(AGES)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Leave out the log."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=25, derandomize=True)
@given(history=choices, queued=st.booleans(), stale=st.sampled_from([0.0, 0.0, 25.0]))
def test_no_history_gives_the_last_tpu_twice_or_deletes_the_others(
    layout: str, history: list[tuple[int, int]], queued: bool, stale: float
) -> None:
    """Of four runs for two TPUs one or two have one in the end, and when all is over every record is closed."""
    twins = Twins(layout, stale)
    for number in (1, 2):
        for airflow in (AIRFLOW, OTHER_AIRFLOW):
            twins.train(airflow, number, queued)
    for which, steps in history:
        twins.go(twins.processes[which], steps)
    twins.together(AGES)
    assert 1 <= len(twins.alive()) <= DEVICES
    twins.end()
    assert twins.alive() == set()
    for airflow in (AIRFLOW, OTHER_AIRFLOW):
        events = twins.stores(airflow)
        closed = {event.node_id for event in events if isinstance(event, Closed)}
        assert {event.node_id for event in events} == closed
