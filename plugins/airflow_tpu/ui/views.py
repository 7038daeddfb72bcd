# SPDX-License-Identifier: Apache-2.0
"""The page as JSON: pure, so that every figure on it is tested without a browser.

Whatever could not be read is *unknown* and says why. It is never a zero: a zero here reads as "free".
"""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

from airflow_tpu.core.grant.grant import WARN_DAYS
from airflow_tpu.core.ledger.usage import Usage
from airflow_tpu.core.report.table import chip_hours, usd
from airflow_tpu.ui.activity import billed_table, chart, preempted, preemption_table, value_table
from airflow_tpu.ui.costs import cost_of
from airflow_tpu.ui.living_tpus import gauges, living, orphan_table, orphans, tpus
from airflow_tpu.ui.logins import logins
from airflow_tpu.ui.parts import UNKNOWN, Reader, moment
from airflow_tpu.ui.snapshot import Snapshot


def page(snapshot: Snapshot, reader: Reader) -> dict[str, Any]:
    """Everything that the page shows.

    :param snapshot: what is known.
    :param reader: who looks.
    """
    usage = snapshot.usage
    return {
        "as_of": moment(snapshot.now),
        "project": snapshot.grant.project_id if snapshot.grant else UNKNOWN,
        "problems": [{"part": part, "text": text} for part, text in snapshot.problems.items()],
        "tiles": [
            _days_left(snapshot),
            _alive(snapshot),
            _covered(usage),
            _not_paid(usage),
            _not_free(usage),
            _preemptions(usage),
            _orphans(snapshot),
        ],
        "gauges": gauges(snapshot),
        "tpus": tpus(snapshot, reader),
        "logins": logins(snapshot, reader),
        "chart": chart(usage, reader),
        "value": value_table(usage),
        "billed": billed_table(usage),
        "preemptions": preemption_table(usage, reader, snapshot.airflows),
        "orphans": orphan_table(snapshot, reader),
    }


def _tile(label: str, value: str, note: str = "", tone: str = "") -> dict[str, str]:
    return {"label": label, "value": value, "note": note, "tone": "unknown" if value == UNKNOWN else tone}


def _days_left(snapshot: Snapshot) -> dict[str, str]:
    grant = snapshot.grant
    if grant is None:
        return _tile("Days left", UNKNOWN)
    left = grant.days_left(snapshot.now)
    if not left:
        return _tile("Days left", "ended", f"since {moment(grant.ends_at)}: everything alive is billed", "bad")
    if snapshot.now < grant.begins_at:
        return _tile("Days left", "not begun", f"starts {moment(grant.begins_at)}", "warn")
    note = f"until {moment(grant.ends_at)}"
    soon = left <= WARN_DAYS
    return _tile("Days left", f"{left:.1f}", f"{note}; ask for an extension" if soon else note, "warn" if soon else "")


def _alive(snapshot: Snapshot) -> dict[str, str]:
    if snapshot.project is None:
        return _tile("TPUs now", UNKNOWN)
    classes = Counter(cost_of(snapshot, item)["text"] for _, item in living(snapshot))
    parts = [f"{count} {name}" for name, count in sorted(classes.items())]
    blind = snapshot.project.unreachable
    parts += [f"{len(blind)} zone(s) did not answer"] if blind else []
    tone = "warn" if set(classes) - {"covered"} or blind else ""
    count = sum(classes.values())
    return _tile("TPUs now", f"{count} or more" if blind else str(count), ", ".join(parts) or "nothing is alive", tone)


def _covered(usage: Usage | None) -> dict[str, str]:
    if usage is None:
        return _tile("Chip-hours covered", UNKNOWN)
    parts = [f"{chip_hours(usage.idle)} idle"] if usage.idle else []
    parts += [f"{chip_hours(usage.lost)} lost"] if usage.lost else []
    parts += [f"loss {UNKNOWN} for {usage.lost_unknown} TPU(s)"] if usage.lost_unknown else []
    return _tile("Chip-hours covered", chip_hours(usage.covered.chip_hours), ", ".join(parts))


def _not_paid(usage: Usage | None) -> dict[str, str]:
    if usage is None:
        return _tile("List value not paid", UNKNOWN)
    total = usage.covered
    note = f"and {UNKNOWN} for {chip_hours(total.unpriced)} chip-hours" if total.unpriced else ""
    return _tile("List value not paid", usd(total.known_value), note)


def _not_free(usage: Usage | None) -> dict[str, str]:
    if usage is None:
        return _tile("Not free", UNKNOWN)
    known = sum((line.usd for line in usage.not_free if line.usd is not None), Decimal(0))
    open_lines = sum(line.usd is None for line in usage.not_free)
    note = f"and {open_lines} item(s) of unknown price" if open_lines else "see the table: not all is measured"
    value = usd(known) if known or not open_lines else UNKNOWN
    return _tile("Not free", "nothing found" if value == "none" else value, note, "warn" if usage.not_free else "")


def _preemptions(usage: Usage | None) -> dict[str, str]:
    if usage is None:
        return _tile("Preemptions", UNKNOWN)
    return _tile("Preemptions", str(len(preempted(usage))), f"of {len(usage.rows)} incarnation(s)")


def _orphans(snapshot: Snapshot) -> dict[str, str]:
    found = orphans(snapshot)
    if found is None:
        return _tile("Orphans", UNKNOWN)
    blind = bool(snapshot.project and snapshot.project.unreachable)
    count = f"{len(found)} or more" if blind else str(len(found))
    return _tile("Orphans", count, "without a living lease", "bad" if found else "")
