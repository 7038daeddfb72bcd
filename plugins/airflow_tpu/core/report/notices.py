# SPDX-License-Identifier: Apache-2.0
"""The daily grant check: which notice is due, what is idle, and which living TPUs no row covers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from airflow_tpu.core.grant.assignment import RowUse, assign
from airflow_tpu.core.grant.grant import WARN_DAYS, Grant
from airflow_tpu.core.grant.inventory import Inventory, InventoryItem
from airflow_tpu.core.ledger.usage import Usage
from airflow_tpu.core.report.extension_request import extension_text

STAGES = (0, 1, WARN_DAYS)
"""Days before the end on which Google mails a grantee, the last first."""


def due_stage(grant: Grant, now: datetime) -> int | None:
    """The notice that is due, in days before the end: 7, 1 or 0; None while the end is further away.

    Days are calendar days of the grant's timezone, because the letter counts those.
    """
    if now >= grant.ends_at:
        return 0
    left = (grant.ends_at.astimezone(grant.zone).date() - now.astimezone(grant.zone).date()).days
    return next((stage for stage in STAGES if max(left, 1) <= stage), None)


def uncovered(grant: Grant, inventory: Inventory, now: datetime) -> list[str]:
    """One sentence for each living TPU that is billed now, and for each allowance that is exceeded."""
    if not grant.is_in_force(now):
        return [f"{_place(item)}: the grant is not in force, so it is billed" for item in inventory.items if item.alive]
    assignment = assign(grant, inventory.items)
    alone = [*assignment.uncovered, *(item for item in assignment.uncounted if item.alive)]
    return [f"{_place(item)}: no allowance covers it, so it is billed" for item in alone] + [
        _excess(use) for use in assignment.uses if use.over
    ]


def standing(grant: Grant, inventory: Inventory, usage: Usage, now: datetime) -> list[str]:
    """Days left, and for each allowance what is idle and what it has given so far."""
    lines = [f"{grant.days_left(now):.1f} days left: the grant ends {grant.ends_at:%Y-%m-%d %H:%M} UTC"]
    for use in assign(grant, inventory.items).uses:
        row = use.row
        total = usage.by_allowance.get(str(row))
        hours = f"{total.chip_hours:.1f}" if total else "0"
        blind = inventory.is_unreachable(row.zone)
        idle = "unknown, its zone did not answer" if blind else f"{use.free} {row.unit}"
        lines.append(f"{row}: idle {idle}; used {hours} chip-hours")
    return lines


def notice(grant: Grant, usage: Usage, stage: int, models: Mapping[str, int] | None = None) -> str:
    """The text of the notice of a stage.

    :param usage: everything since the ledger began.
    :param stage: days before the end.
    :param models: number of versions of each model in the bucket.
    """
    ends = f"{grant.ends_at.astimezone(grant.zone):%Y-%m-%d %H:%M} {grant.zone}"
    head = f"The grant ended {ends}: every TPU is billed." if stage == 0 else f"The grant ends {ends}."
    return "\n".join([head, "For the extension request:", *extension_text(grant, usage, models or {})])


def _excess(use: RowUse) -> str:
    names = ", ".join(item.id for item in (*use.covered, *use.beyond))
    return f"{use.row}: {use.in_use} {use.row.unit} are in use, so {use.over} of them are billed; delete one of {names}"


def _place(item: InventoryItem) -> str:
    return f"{item.id} ({item.accelerator_type or 'unknown type'}, {item.tier}, {item.zone})"
