# SPDX-License-Identifier: Apache-2.0
"""The verdict of scripts/demo: the ledger against the local cloud's own meter."""

from __future__ import annotations

import json
from typing import Any

from scripts.summary import Store, find_faults, join, report

NODE = "tpu-train-0123456789-1"
OPENED = {"node_id": NODE, "accelerator_type": "v2-8", "zone": "us-central1-f", "tier": "on-demand"}
CLOSED = {
    "node_id": NODE,
    "ready_at": "2026-01-01T00:00:00+00:00",
    "ended_at": "2026-01-01T00:01:00+00:00",
    "end_reason": "finished",
}
BILL = {"name": f"projects/p/locations/z/nodes/{NODE}", "chips": 4, "ready_seconds": 61.0, "gone": True}
GOOD_RUN = {"state": "success", "tasks": [{"task_id": "train", "state": "success", "seconds": 3.25, "tries": 1}]}


def store(*events: dict[str, Any]) -> Store:
    """A bucket that holds these events of the ledger."""
    objects = {
        f"p/ledger/incarnations/{event['node_id']}/{'closed' if 'ended_at' in event else 'opened'}.json": event
        for event in events
    }
    content = {name: json.dumps(event).encode() for name, event in objects.items()}
    return Store("bucket", {name: len(data) for name, data in content.items()}, content.__getitem__)


def faults(*events: dict[str, Any], run: dict[str, Any] = GOOD_RUN, **bill: Any) -> list[str]:
    """What the summary finds wrong with these events and this bill."""
    lives = join(store(*events), {"nodes": [BILL | bill]})
    return list(find_faults(run, lives, [0.98]))


def test_a_good_run_has_no_fault() -> None:
    """A run whose ledger and meter differ by no more than a poll is as it should be."""
    assert faults(OPENED, CLOSED) == []


def test_seconds_that_the_ledger_leaves_out_are_found() -> None:
    """READY seconds that only the meter has seen are a fault."""
    assert [fault for fault in faults(OPENED, CLOSED, ready_seconds=90.0) if "60.0 s" in fault and "90.0 s" in fault]


def test_a_tpu_that_the_ledger_does_not_know_is_found() -> None:
    """A node on the meter without an opened event is a fault."""
    assert any("not in the ledger" in fault for fault in faults())


def test_a_tpu_that_still_runs_is_found() -> None:
    """A node that was not deleted is a fault, and so is an incarnation that was never closed."""
    assert faults(OPENED, gone=False) == [f"{NODE} was not deleted", f"{NODE} was never closed in the ledger"]


def test_a_failed_dag_run_is_a_fault() -> None:
    """The summary does not pass a DAG run that failed, however well the ledger is kept."""
    assert faults(OPENED, CLOSED, run=GOOD_RUN | {"state": "failed"}) == ["the DAG run ended as failed"]


def test_a_run_without_tpu_or_accuracy_is_a_fault() -> None:
    """A chain that did nothing is not taken for one that worked."""
    assert len(list(find_faults(GOOD_RUN, [], []))) == 2


def test_the_page_names_the_tpu_the_tasks_and_both_counts() -> None:
    """The page shows what was created and deleted, how tasks ended, and ledger and meter side by side."""
    bucket = store(OPENED, CLOSED)
    page = "\n".join(report(GOOD_RUN, join(bucket, {"nodes": [BILL]}), [0.98], bucket))
    for fact in (
        "v2-8 in us-central1-f, on-demand",
        "(finished)",
        "0.9800",
        "3.2 s, try 1",
        "ledger: 60.0 s",
        "meter: 61.0 s",
    ):
        assert fact in page
