# SPDX-License-Identifier: Apache-2.0
"""Print what a run of the demo did, and check it against the local cloud's own billing meter.

Usage: ``summary.py OUTCOME_JSON METER_JSON ENDPOINTS_JSON BUCKET``. The first file is from run_dag.py, the second from
``localcloud meter``, which counts READY seconds without knowing the product. Exit code 0 means: the DAG run succeeded,
a TPU was used and is gone, the script reported a test accuracy, and ledger and meter agree.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

# The ledger's instants are the API's own where it tells them, and otherwise those at which a poll noticed.
TOLERANCE_SECS = 5.0
EVENTS = "/ledger/incarnations/"


@dataclass(frozen=True)
class Store:
    """What is in the bucket: sizes by object name, and a way to read one."""

    bucket: str
    sizes: dict[str, int]
    read: Callable[[str], bytes]

    def json(self, ending: str) -> Iterator[dict[str, Any]]:
        """All objects whose name ends like this, parsed."""
        yield from (json.loads(self.read(name)) for name in sorted(self.sizes) if name.endswith(ending))


@dataclass(frozen=True)
class Life:
    """One incarnation of a TPU, as the ledger and as the meter saw it. Times in READY seconds, None when not known."""

    node_id: str
    opened: dict[str, Any] | None
    closed: dict[str, Any] | None
    bill: dict[str, Any] | None

    @property
    def ledger_seconds(self) -> float | None:
        """READY time by the ledger."""
        if self.closed is None:
            return None
        if self.closed["ready_at"] is None:
            return 0.0
        ready, ended = (datetime.fromisoformat(self.closed[key]) for key in ("ready_at", "ended_at"))
        return (ended - ready).total_seconds()

    @property
    def meter_seconds(self) -> float:
        """READY time by the local cloud's meter."""
        return float(self.bill["ready_seconds"]) if self.bill else 0.0

    def faults(self) -> Iterator[str]:
        """What is wrong with this incarnation."""
        if self.opened is None:
            yield f"{self.node_id} is on the meter but not in the ledger"
        if self.bill is not None and not self.bill["gone"]:
            yield f"{self.node_id} was not deleted"
        seconds = self.ledger_seconds
        if seconds is None:
            yield f"{self.node_id} was never closed in the ledger"
        elif abs(seconds - self.meter_seconds) > TOLERANCE_SECS:
            yield f"{self.node_id}: the ledger says {seconds:.1f} s READY, the meter {self.meter_seconds:.1f} s"


def main(outcome_file: str, meter_file: str, endpoints_file: str, bucket: str) -> int:
    """Print the summary; exit code 1 if anything in it is not as it should be."""
    outcome, meter, endpoints = (
        json.loads(Path(file).read_text(encoding="utf-8")) for file in (outcome_file, meter_file, endpoints_file)
    )
    store = open_store(endpoints, bucket)
    lives = join(store, meter)
    accuracy = [metrics["test_accuracy"] for metrics in store.json("/metrics.json") if "test_accuracy" in metrics]
    faults = list(find_faults(outcome, lives, accuracy))
    for line in report(outcome, lives, accuracy, store):
        print(line)
    print("\nNOT AS IT SHOULD BE" if faults else "\nAll as it should be.")
    for fault in faults:
        print(f"  {fault}")
    return 1 if faults else 0


def open_store(endpoints: dict[str, Any], bucket_name: str) -> Store:
    """The bucket, through Google's own client."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud.storage import Client

    options = {"api_endpoint": endpoints["storage_api_endpoint"]}
    client = Client(endpoints["project_id"], credentials=AnonymousCredentials(), client_options=options)
    bucket = client.bucket(bucket_name)
    sizes = {blob.name: blob.size for blob in client.list_blobs(bucket)}
    return Store(bucket_name, sizes, lambda name: bytes(bucket.blob(name).download_as_bytes()))


def join(store: Store, meter: dict[str, Any]) -> list[Life]:
    """Join ledger and meter by node id."""
    opened = {event["node_id"]: event for event in store.json("/opened.json")}
    closed = {event["node_id"]: event for event in store.json("/closed.json")}
    bills = {node["name"].rpartition("/")[2]: node for node in meter["nodes"]}
    ids = sorted(opened.keys() | bills.keys())
    return [Life(node_id, opened.get(node_id), closed.get(node_id), bills.get(node_id)) for node_id in ids]


def find_faults(outcome: dict[str, Any], lives: list[Life], accuracy: list[float]) -> Iterator[str]:
    """Yield everything that is not as it should be after a good run."""
    if outcome["state"] != "success":
        yield f"the DAG run ended as {outcome['state']}"
    if not any(life.meter_seconds for life in lives):
        yield "no TPU was ever READY"
    if not accuracy:
        yield "no metrics.json with a test accuracy is in the bucket"
    for life in lives:
        yield from life.faults()


def report(outcome: dict[str, Any], lives: list[Life], accuracy: list[float], store: Store) -> Iterator[str]:
    """The page, line by line."""
    yield "\nWHAT HAPPENED"
    yield from (f"  TPU        {line}" for life in lives for line in tell_life(life))
    yield from (f"  task       {tell_task(task)}" for task in outcome["tasks"])
    yield from (f"  accuracy   {value:.4f} on the test set" for value in accuracy)
    yield f"\nIN gs://{store.bucket}"
    yield from (f"  {size:>12,} B  {name}" for name, size in sorted(store.sizes.items()))
    yield "\nLEDGER AND METER (READY seconds and chip-hours, counted independently)"
    for life in lives:
        chips = life.bill["chips"] if life.bill else 0
        ledger = life.ledger_seconds
        by_ledger = "nothing" if ledger is None else f"{ledger:.1f} s, {ledger * chips / 3600:.4f} chip-hours"
        by_meter = f"{life.meter_seconds:.1f} s, {life.meter_seconds * chips / 3600:.4f} chip-hours"
        yield f"  {life.node_id}  ledger: {by_ledger}; meter: {by_meter}"


def tell_life(life: Life) -> Iterator[str]:
    """Name, type, zone and end of one TPU."""
    facts = life.opened or life.bill or {}
    yield f"created  {life.node_id}: {facts.get('accelerator_type')} in {facts.get('zone')}, {facts.get('tier')}"
    if life.bill and life.bill["gone"]:
        reason = life.closed["end_reason"] if life.closed else "not in the ledger"
        yield f"deleted  {life.node_id} ({reason}) after {life.meter_seconds:.1f} s READY"


def tell_task(task: dict[str, Any]) -> str:
    """One task's end."""
    seconds = f"{task['seconds']:.1f} s" if task["seconds"] is not None else "not run"
    return f"{task['task_id']:<24} {task['state']:<10} {seconds}, try {task['tries']}"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
