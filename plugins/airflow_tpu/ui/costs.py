"""Who pays for a TPU that exists: the question that Google's console does not answer."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from airflow_tpu.core.grant.allowance import Allowance
from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.core.grant.inventory import Inventory, InventoryItem
from airflow_tpu.core.ledger.events import Opened
from airflow_tpu.ui.parts import Cell, cell, moment, unknown

COVERED, OVER, PAID, BILLED, DEAD = "covered", "over the allowance", "paid, accepted", "billed", "dead"


def rows_for(grant: Grant, item: InventoryItem) -> tuple[Allowance, ...]:
    """Rows of the grant that are about such a TPU."""
    pool = (item.zone, item.tier.pool)
    return tuple(row for row in grant.allowances if row.is_of(item.accelerator_type) and (row.zone, row.tier) == pool)


def units(row: Allowance, held: Iterable[InventoryItem], alive: bool) -> int:
    """How much of a row the living, or the dead ones of these take."""
    return sum(row.units(item.chips or 0) for item in held if item.alive is alive)


def cost_class(item: InventoryItem, grant: Grant | None, inventory: Inventory, now: datetime) -> Cell:
    """Covered, over, billed, dead or unknown, with the reason.

    :param item: the TPU.
    :param grant: None if it could not be read.
    :param inventory: everything that shares the allowances with it.
    :param now: aware instant to judge at.
    """
    if not item.alive:
        return cell(DEAD, "holds quota until it is deleted", tone="warn")
    if grant is None:
        return unknown("the grant could not be read")
    if item.chips is None:
        return unknown(f"nobody can count the chips of {item.accelerator_type or 'a TPU without a type'}")
    if not grant.start <= now < grant.ends_at:
        when = f"ended {moment(grant.ends_at)}" if now >= grant.ends_at else f"starts {moment(grant.start)}"
        return cell(BILLED, f"the grant {when}", tone="bad")
    rows = rows_for(grant, item)
    if not rows:
        return cell(BILLED, "no allowance covers its type, tier and zone", tone="bad")
    if all(units(row, inventory.holding(row, ""), True) > row.count for row in rows):
        return cell(OVER, f"beyond {rows[0]}", tone="bad")
    return cell(COVERED, str(rows[0]), tone="good")


def accepted(opened: Opened | None) -> Cell | None:
    """The cost class of a TPU of ours that somebody decided to pay for, None for any other."""
    if opened is None or opened.allowance is not None:
        return None
    return cell(PAID, opened.paid_reason or "no reason was given", tone="bad")
