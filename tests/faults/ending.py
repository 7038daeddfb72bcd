# SPDX-License-Identifier: Apache-2.0
"""The end of a history: every process is dead, the reaper makes its rounds, and books and meter are compared."""

from __future__ import annotations

import json

from airflow_tpu.core.ledger.events import Closed, Opened, TimeSource, event_from_bytes
from airflow_tpu.lifecycle.reap import reap
from tests.airflow_tpu.identities import AIRFLOW
from tests.faults.project import RUNS, Project

ROUND = 900.0
"""Seconds between two rounds of the reaper."""

EXACT = 1e-3


def settle(project: Project) -> None:
    """Let everything end and check what is left.

    :raises AssertionError: something is, or a second is missing in the ledger.
    """
    project.trail.append("          the end")
    for process in list(project.processes):
        project.kill(process)
    project.cloud.faults.clear()
    project.states = dict.fromkeys(RUNS, "failed")
    for _ in range(4):
        project.start("reaper", lambda at: reap(at.grant, lambda *_: "failed", AIRFLOW))
        project.together(ROUND)
    left = [one.node_id for one in project.living()]
    assert not left, project.story(f"lives on: {left}")
    known = [*project.cloud.state.nodes.records, *project.cloud.state.queued.records]
    assert known == [f"projects/local-project/locations/us-central1-f/nodes/{project.colleague}"], project.story(
        f"the API still knows {known}"
    )
    keeps = {name: text for name, (_, text) in project.bucket.objects.items()}
    runs = [name for name in keeps if name.startswith("trc/leases/")]
    assert not runs, project.story(f"leases are left: {runs}")
    reserved = json.loads(keeps.get("airflow-tpu-shared/local-project/reservations.json", '{"entries": []}'))["entries"]
    assert not reserved, project.story(f"still reserved: {reserved}")
    _compare(project, keeps)


def _compare(project: Project, keeps: dict[str, str]) -> None:
    events = [event_from_bytes(text) for name, text in keeps.items() if "/incarnations/" in name]
    opened = {event.node_id: event for event in events if isinstance(event, Opened)}
    closed = {event.node_id: event for event in events if isinstance(event, Closed)}
    assert opened.keys() == closed.keys(), project.story(f"never closed: {opened.keys() - closed.keys()}")
    for row in project.cloud.meter.dump()["nodes"]:
        node_id = row["name"].rpartition("/")[2]
        if node_id != project.colleague:
            assert node_id in opened, project.story(f"{node_id} is not in the ledger")
    for node_id, event in closed.items():
        _check_seconds(project, opened[node_id], event)


def _check_seconds(project: Project, opened: Opened, event: Closed) -> None:
    """The ledger never has too little; by the API's clock it is exact; and never more than from request to notice."""
    metered = project.cloud.meter.ready_seconds(event.node_id)
    booked = (event.ended_at - event.ready_at).total_seconds() if event.ready_at and event.ended_at else 0.0
    what = f"{event.node_id}: {booked:.3f} s in the ledger, {metered:.3f} s on the meter, {event}"
    by_api = event.time_source is TimeSource.API and event.ready_at is not None
    if by_api and event.node_id not in project.preempted | project.vanished:
        assert abs(booked - metered) < EXACT, project.story(what)
    if event.node_id not in project.vanished | project.unbooked | project.late:
        assert booked > metered - EXACT, project.story(what)
    asked = (opened.requested_at - project.cloud.clock.now()).total_seconds() + project.cloud.clock.monotonic()
    assert booked <= project.closed_at[event.node_id] - asked + EXACT, project.story(what)
