# SPDX-License-Identifier: Apache-2.0
"""The usage as JSON, small enough for XCom and an asset event."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from itertools import islice
from typing import Any

from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.core.json_form import instant_to_json
from airflow_tpu.core.ledger.billable import NOT_MEASURED, NotFree
from airflow_tpu.core.ledger.incarnation import Row
from airflow_tpu.core.ledger.usage import Total, Usage

LIMIT = 48_000
"""Bytes; Airflow writes XCom into its database, and some of those stop at 64 kB."""
_ENTRIES = (100, 40, 15, 5, 1, 0)


def json_summary(usage: Usage, grant: Grant | None = None) -> dict[str, Any]:
    """The report for programs: under 48 kB, only finite numbers, an unknown value is null.

    Long lists are cut to their newest or largest entries, and ``left_out`` says how many are missing.
    """
    for entries in _ENTRIES:
        summary = _summary(usage, grant, entries)
        if len(json.dumps(summary, allow_nan=False)) < LIMIT:
            break
    return summary


def _summary(usage: Usage, grant: Grant | None, entries: int) -> dict[str, Any]:
    kept = usage.rows[max(0, len(usage.rows) - entries) :]
    groups = {
        "by_allowance": usage.by_allowance,
        "by_dag": usage.by_dag,
        "by_run": usage.by_run,
        "by_day": _newest(usage.by_day),
    }
    left_out = {name: max(0, len(group) - entries) for name, group in groups.items()}
    return {
        "now": instant_to_json(usage.now),
        "covered": _total(usage.covered),
        "not_covered": _total(usage.not_covered),
        "idle_chip_hours": _number(usage.idle),
        "lost_chip_hours": _number(usage.lost),
        "incarnations_of_unknown_loss": usage.lost_unknown,
        "running": len(usage.running),
        "not_free": [_not_free(line) for line in usage.not_free[:entries]],
        "not_measured": NOT_MEASURED,
        **{name: {key: _total(group[key]) for key in islice(group, entries)} for name, group in groups.items()},
        "incarnations": [_row(row) for row in reversed(kept)],
        "left_out": {
            **left_out,
            "incarnations": len(usage.rows) - len(kept),
            "not_free": max(0, len(usage.not_free) - entries),
        },
        **({} if grant is None else {"grant": _grant(grant, usage.now)}),
    }


def _newest(by_day: Mapping[str, Total]) -> dict[str, Total]:
    return dict(sorted(by_day.items(), reverse=True))


def _total(total: Total) -> dict[str, float | None]:
    return {
        "chip_hours": _number(total.chip_hours),
        "list_value_usd": _number(total.known_value),
        "chip_hours_of_unknown_price": _number(total.unpriced),
    }


def _not_free(line: NotFree) -> dict[str, Any]:
    quantity, cost = _number(line.quantity), _number(line.usd)
    return {"what": line.what, "quantity": quantity, "unit": line.unit, "usd": cost, "note": line.note}


def _row(row: Row) -> dict[str, Any]:
    price = row.price
    return {
        "node_id": row.opened.node_id,
        "dag_id": row.opened.dag_id,
        "run_id": row.opened.run_id,
        "accelerator_type": row.opened.accelerator_type,
        "zone": row.opened.zone,
        "tier": str(row.opened.tier),
        "allowance": row.opened.allowance,
        "state": row.state,
        "chip_hours": _number(row.chip_hours),
        "covered_chip_hours": _number(row.covered_chip_hours),
        "idle_chip_hours": _number(row.idle_chip_hours),
        "lost_chip_hours": _number(row.lost_chip_hours),
        "estimated": row.estimated,
        "usd_per_chip_hour": None if price is None else _number(price.usd_per_chip_hour),
        "price_date": None if price is None else price.date,
    }


def _grant(grant: Grant, now: datetime) -> dict[str, Any]:
    ends_at = instant_to_json(grant.ends_at)
    return {"project_id": grant.project_id, "ends_at": ends_at, "days_left": round(grant.days_left(now), 2)}


def _number(value: Decimal | None) -> float | None:
    """A float with six decimals, but never a zero for something: JSON has no decimals and no NaN."""
    if value is None or not math.isfinite(value):
        return None
    rounded = round(float(value), 6)
    return rounded if rounded or not value else float(value)
