# SPDX-License-Identifier: Apache-2.0
"""Facts for a request to extend the grant: how much was used, for what, and how often it was interrupted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.core.ledger.events import EndReason
from airflow_tpu.core.ledger.incarnation import RUNNING, Row
from airflow_tpu.core.ledger.usage import Usage
from airflow_tpu.core.report.text import ACKNOWLEDGEMENT

_TAKEN = (EndReason.PREEMPTED, EndReason.VANISHED)


def extension_text(grant: Grant, usage: Usage, models: Mapping[str, int]) -> list[str]:
    """Facts for the request, a line each.

    :param grant: whose extension is asked for.
    :param usage: everything since the ledger began.
    :param models: number of versions of each model in the bucket.
    """
    runs = {(row.opened.dag_id, row.opened.run_id) for row in usage.rows}
    return [
        f"Project {grant.project_id} ({grant.project_number}), {len(runs)} training run(s) on Cloud TPUs.",
        *(f"{name}: {total.chip_hours:.1f} chip-hours" for name, total in sorted(usage.by_allowance.items())),
        _taken(usage),
        _models(models),
        f"Artifacts, models and the ledger: gs://{grant.bucket}/{grant.prefix}/",
        f"Every publication acknowledges the grant: {ACKNOWLEDGEMENT}",
    ]


def _taken(usage: Usage) -> str:
    lost = [(row, survived) for row, survived in _with_successor(usage) if row.state in _TAKEN]
    if not lost:
        return "No TPU was taken away during a run."
    kinds = Counter(row.state for row, _ in lost)
    named = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    survived = sum(after for _, after in lost)
    return f"{len(lost)} TPU(s) were taken away ({named}); after {survived} of them the run continued on another TPU."


def _with_successor(usage: Usage) -> list[tuple[Row, bool]]:
    """Each incarnation, and whether a later one of the same run was READY.

    One that was never READY did not continue the run; of one without an end the ledger does not know yet whether it
    became READY.
    """
    found: list[tuple[Row, bool]] = []
    later: set[str] = set()
    for row in reversed(usage.rows):
        found.append((row, row.opened.run in later))
        if row.state != RUNNING and row.chip_hours:
            later.add(row.opened.run)
    return found


def _models(models: Mapping[str, int]) -> str:
    if not models:
        return "No model has been registered; what the runs produced is among their artifacts."
    named = ", ".join(f"{name} ({count} version(s))" for name, count in sorted(models.items()))
    return f"Models: {named}."
