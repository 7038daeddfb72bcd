# SPDX-License-Identifier: Apache-2.0
"""Who pays for a TPU that exists: the question that Google's console does not answer."""

from __future__ import annotations

from airflow_tpu.core.grant.inventory import InventoryItem
from airflow_tpu.ui.parts import Cell, cell, moment, unknown
from airflow_tpu.ui.snapshot import Snapshot

COVERED, OVER, PAID, BILLED, DEAD = "covered", "over the allowance", "paid, accepted", "billed", "dead"


def cost_of(snapshot: Snapshot, item: InventoryItem) -> Cell:
    """Covered, over, paid, billed, dead or unknown, with the reason.

    A decision to pay that the ledger holds goes before what the grant would say.
    """
    if not item.alive:
        return cell(DEAD, "holds quota until it is deleted", tone="warn")
    if item.name is not None and item.name in snapshot.paid:
        opened = snapshot.opened[item.name.id]
        return cell(PAID, opened.paid_reason or "no reason was given", tone="bad")
    grant, assignment = snapshot.grant, snapshot.assignment
    if grant is None or assignment is None:
        return unknown("the grant could not be read")
    if item in assignment.uncounted:
        return unknown(f"the chips of {item.accelerator_type or 'a TPU without a type'} cannot be counted")
    if not grant.is_in_force(snapshot.now):
        ended = snapshot.now >= grant.ends_at
        when = f"ended {moment(grant.ends_at)}" if ended else f"starts {moment(grant.begins_at)}"
        return cell(BILLED, f"the grant {when}", tone="bad")
    use = assignment.places.get(item)
    if use is None:
        return cell(BILLED, "no allowance covers its type, tier and zone", tone="bad")
    # Which TPUs of an exceeded row Google bills is unknown, unless the bill of all that are too many was accepted.
    if any(other.name not in snapshot.paid for other in use.beyond):
        return cell(OVER, f"beyond {use.row}", tone="bad")
    return cell(COVERED, str(use.row), tone="good")
