# SPDX-License-Identifier: Apache-2.0
"""What is alive now: gauges of the allowances, the TPUs with their cost class, and the orphans."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from airflow_tpu.core.grant.allowance import Allowance
from airflow_tpu.core.grant.assignment import Assignment, RowUse
from airflow_tpu.core.grant.inventory import Inventory, InventoryItem
from airflow_tpu.core.run.expiry import Deletion, LeaseState, select_expired
from airflow_tpu.core.tpu.labels import is_managed, run_of
from airflow_tpu.core.tpu.resource_name import ResourceKind
from airflow_tpu.core.tpu.spec import QueuedView, TPUView
from airflow_tpu.ui.costs import cost_of
from airflow_tpu.ui.parts import NUMBER, TEXT, UNKNOWN, WORD, Cell, Reader, cell, console, span, table, unknown
from airflow_tpu.ui.snapshot import GRANT, LIVE_TPUS, RECORDS, Snapshot

TPU_COLUMNS = (
    ("TPU", TEXT),
    ("State", WORD),
    ("Type", WORD),
    ("Zone", WORD),
    ("Age", NUMBER),
    ("Run", TEXT),
    ("Cost class", TEXT),
)
ORPHAN_COLUMNS = (("Resource", TEXT), ("Why it is an orphan", TEXT), ("Run", TEXT))
_NODE_PAGE = "compute/tpus/details/{zone}/{node_id}"
_LIST_PAGE = "compute/tpus"


def gauges(snapshot: Snapshot) -> list[dict[str, Any]] | None:
    """One gauge per allowance, None if the grant is unknown."""
    if snapshot.grant is None:
        return None
    if snapshot.assignment is None or snapshot.inventory is None:
        return [_blind(row, "what is alive could not be read") for row in snapshot.grant.allowances]
    return [_gauge(use, snapshot.assignment, snapshot.inventory) for use in snapshot.assignment.uses]


def _gauge(use: RowUse, assignment: Assignment, inventory: Inventory) -> dict[str, Any]:
    row = use.row
    if inventory.is_unreachable(row.zone):
        return _blind(row, f"{row.zone} did not answer")
    if odd := assignment.uncounted_in(row.zone, row.tier):
        return _blind(row, f"the chips of {odd[0]} cannot be counted")
    # Dead ones leave less to request, but are not charged: over is what lives beyond the count.
    parts = [f"{use.in_use} of {row.count} {row.unit} in use", f"{use.free} idle"]
    parts += [f"{use.dead_units} held by dead TPUs"] if use.dead_units else []
    parts += [f"{use.over} over the allowance: billed"] if use.over else []
    figures = {"in_use": use.in_use, "dead": use.dead_units, "idle": use.free, "over": use.over}
    return {**_named(row), **figures, "text": ", ".join(parts)}


def _blind(row: Allowance, why: str) -> dict[str, Any]:
    figures = dict.fromkeys(("in_use", "dead", "idle", "over"))
    return {**_named(row), **figures, "text": f"{UNKNOWN}: {why}"}


def _named(row: Allowance) -> dict[str, Any]:
    return {"name": str(row), "count": row.count, "unit": row.unit}


def living(snapshot: Snapshot) -> list[tuple[TPUView | QueuedView, InventoryItem]]:
    """Every TPU once: nodes, and the queued resources that have no node yet."""
    if snapshot.project is None or snapshot.inventory is None:
        return []
    everything: list[TPUView | QueuedView] = [*snapshot.project.queued, *snapshot.project.nodes]
    views = {view.name: view for view in everything}
    return [(views[item.name], item) for item in snapshot.inventory.items if item.name]


def tpus(snapshot: Snapshot, reader: Reader) -> dict[str, Any]:
    """The table of what exists, those that cost money first."""
    project = snapshot.project
    if project is None:
        return table(TPU_COLUMNS, (), f"{UNKNOWN}: {snapshot.problems.get(LIVE_TPUS, '')}")
    rows = [_tpu(snapshot, reader, view, item) for view, item in living(snapshot)]
    more = (
        f"no answer from {', '.join(project.unreachable)}: what lives there is {UNKNOWN}" if project.unreachable else ""
    )
    order = {"bad": 0, "unknown": 1, "warn": 2, "good": 3}
    empty = f"no TPU was found, but not every zone answered: {UNKNOWN}" if more else "no TPU exists in the project"
    return table(TPU_COLUMNS, sorted(rows, key=lambda row: order[row[-1]["tone"]]), empty, more)


def _tpu(snapshot: Snapshot, reader: Reader, view: TPUView | QueuedView, item: InventoryItem) -> list[Cell]:
    dag_id, _ = snapshot.runs.get(item.owner or "", (None, ""))
    return [
        _name(reader, view, dag_id, item.node),
        cell(view.state or UNKNOWN),
        cell(view.accelerator_type or UNKNOWN, note=str(view.tier)),
        cell(view.zone),
        _age(snapshot, view),
        _run(snapshot, reader, view),
        cost_of(snapshot, item),
    ]


def _name(reader: Reader, view: TPUView | QueuedView, dag_id: str | None, one_of_several: str) -> Cell:
    node_id = view.name.id
    if is_managed(view.labels) and not reader.may_see(dag_id):
        return cell(reader.node(node_id, dag_id))
    path = _NODE_PAGE.format(zone=view.zone, node_id=node_id) if isinstance(view, TPUView) else _LIST_PAGE
    note = f"waits for its node {one_of_several}" if one_of_several else ""
    return cell(node_id, note=note, href=console(path, view.name.project))


def _age(snapshot: Snapshot, view: TPUView | QueuedView) -> Cell:
    opened = snapshot.opened.get(view.name.id)
    began = view.created_at if isinstance(view, TPUView) and view.created_at else opened and opened.requested_at
    return cell(span(snapshot.now - began)) if began else unknown()


def _run(snapshot: Snapshot, reader: Reader, view: TPUView | QueuedView) -> Cell:
    dag_id, run_id = snapshot.runs.get(run_of(view.labels) or "", (None, ""))
    if not is_managed(view.labels):
        return cell("not made here")
    if not snapshot.airflows.owns(view.labels):
        return cell("of another Airflow", note=snapshot.airflows.owner(view.labels))
    return unknown("neither lease nor ledger knows its run") if dag_id is None else reader.run(dag_id, run_id)


def orphans(snapshot: Snapshot) -> list[Deletion] | None:
    """Managed resources without a living lease, None if that cannot be known."""
    if snapshot.project is None or snapshot.records is None:
        return None
    return _expired([*snapshot.project.queued, *snapshot.project.nodes], snapshot, snapshot.now)


def _expired(views: Iterable[TPUView | QueuedView], snapshot: Snapshot, now: datetime) -> list[Deletion]:
    """What the reaper would delete, as far as lease and labels tell; the state of DAG runs is not asked here."""
    states = {
        record.key.digest: LeaseState(record.key.digest, record.lease.expires_at, None)
        for record in snapshot.records or ()
    }
    return select_expired(snapshot.airflows, views, {**states, **snapshot.left_alone}, now)


def orphan_table(snapshot: Snapshot, reader: Reader) -> dict[str, Any]:
    """The table of orphans."""
    found = orphans(snapshot)
    if found is None:
        reasons = [snapshot.problems[part] for part in (LIVE_TPUS, RECORDS, GRANT) if part in snapshot.problems]
        return table(ORPHAN_COLUMNS, (), f"{UNKNOWN}: {'; '.join(dict.fromkeys(reasons))}")
    runs = snapshot.runs
    rows = []
    for deletion in found:
        dag_id, run_id = runs.get(deletion.run, (None, ""))
        kind = "queued resource" if deletion.name.kind is ResourceKind.QUEUED else "node"
        name = cell(reader.node(deletion.name.id, dag_id), note=kind)
        rows.append([name, cell(deletion.reason, tone="bad"), reader.run(dag_id, run_id) if dag_id else unknown()])
    blind = bool(snapshot.project and snapshot.project.unreachable)
    all_seen = "none: every TPU of this Airflow has a living lease"
    empty = f"none found, but not every zone answered: {UNKNOWN}" if blind else all_seen
    return table(ORPHAN_COLUMNS, rows, empty, "the DAG tpu_reaper deletes them" if rows else "")
