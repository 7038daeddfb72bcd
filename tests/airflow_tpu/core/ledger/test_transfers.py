# SPDX-License-Identifier: Apache-2.0
"""Cross-region transfers of a run, and what the report says they cost."""

from __future__ import annotations

from decimal import Decimal

import pytest

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.catalogue.transfer_rates import StoredSize
from airflow_tpu.core.ledger.billable import NotFree
from airflow_tpu.core.ledger.events import Closed, EndReason, Opened, Transfer
from airflow_tpu.core.ledger.transfers import transfers
from airflow_tpu.core.ledger.usage import fold
from airflow_tpu.core.report.text import text_report
from tests.airflow_tpu.core.made_ledger import NOW, closed, opened

GIB = 1024**3
RUNS, DATA = "gs://far-away/runs", "gs://partner/images"


def billed(catalogue: Catalogue, *events: Opened | Closed) -> list[NotFree]:
    """The lines about data that travels."""
    lines = fold(events, catalogue, NOW).not_free
    return [line for line in lines if line.what.startswith(("artifacts to", "data from", "accepted", "traffic"))]


def run(*found: Transfer, node_id: str = "a", reason: str = "one pass", size: int = 3 * GIB) -> list[Opened | Closed]:
    """One TPU in us-central1 with these buckets elsewhere."""
    return [opened(node_id, transfers=found, paid_reason=reason), closed(node_id, artifact_bytes=size)]


def test_what_is_elsewhere_is_noted() -> None:
    """Each bucket that is not in the TPU's region, or not known to be, with the direction and the amount."""
    locations = {RUNS: "europe-west4", DATA: None, "gs://near/x": "US-CENTRAL1"}
    below = {RUNS: StoredSize(7), DATA: StoredSize(5, complete=False)}
    assert transfers(locations, below, "us-central1-f", RUNS) == (
        Transfer(RUNS, "EUROPE-WEST4", outward=True, size=7),
        Transfer(DATA, "", outward=False, size=None),
    )


def test_traffic_has_a_price(catalogue: Catalogue) -> None:
    """Artifacts and one pass over the data, each TPU's, at the upper end of the rates that the refusal names."""
    far = Transfer(RUNS, "EUROPE-WEST4", outward=True), Transfer(DATA, "EUROPE-WEST4", outward=False, size=50 * GIB)
    artifacts, data = billed(catalogue, *run(*far), *run(*far, node_id="b", size=GIB))
    assert (artifacts.what, artifacts.unit) == ("artifacts to EUROPE-WEST4", "GiB or more")
    assert (artifacts.quantity, artifacts.usd) == (Decimal(4), Decimal("0.48"))
    assert "at the upper end of 0.02 to 0.12 USD per GiB (skyplane" in artifacts.note
    assert (data.what, data.unit) == ("data from EUROPE-WEST4", "GiB a pass")
    assert (data.quantity, data.usd) == (Decimal(100), Decimal(12))
    assert "one pass by each of 2 TPU(s)" in data.note
    assert artifacts.note.endswith("accepted: one pass")


@pytest.mark.parametrize("location", ["ME-WEST1", ""])
def test_an_unknown_pair_has_no_price(catalogue: Catalogue, location: str) -> None:
    """Bytes are known, the route is not: the cost is unknown, never nothing."""
    lines = billed(catalogue, *run(Transfer(RUNS, location, outward=True), Transfer(DATA, location, False, GIB)))
    assert [(line.quantity, line.usd) for line in lines] == [(Decimal(3), None), (Decimal(1), None)]
    assert all("is not known here" in line.note for line in lines)


def test_an_unknown_amount_has_no_price(catalogue: Catalogue) -> None:
    """What was not counted, what still runs, and what is empty so far have no quantity, and so no price."""
    counted = Transfer(DATA, "US", outward=False, size=GIB)
    unknown = Transfer(DATA, "US", outward=False)
    sums = billed(catalogue, *run(counted), *run(unknown, node_id="b"))
    running = billed(catalogue, opened(transfers=(Transfer(RUNS, "US", outward=True),), paid_reason="small"))
    empty = billed(catalogue, *run(Transfer(RUNS, "US", outward=True), size=0))
    assert [(line.quantity, line.unit, line.usd) for line in (*sums, *running, *empty)] == [(None, "", None)] * 3


def test_a_paid_tpu_sends_its_artifacts_too(catalogue: Catalogue) -> None:
    """Traffic is billed beside a TPU that no allowance covers just as beside one that is covered."""
    first, last = run(Transfer(RUNS, "US", outward=True))
    assert isinstance(first, Opened)
    paid = opened("a", transfers=first.transfers, allowance=None, paid_reason="it is due")
    (line,) = billed(catalogue, paid, last)
    assert line.usd == Decimal("0.06")  # 3 GiB within North America


def test_what_never_was_ready_has_moved_nothing(catalogue: Catalogue) -> None:
    """A TPU that never came read nothing."""
    event = opened(transfers=(Transfer(DATA, "US", False, GIB),), paid_reason="small")
    assert billed(catalogue, event, Closed(event.node_id, None, None, EndReason.NEVER_READY)) == []


def test_a_reason_without_a_bucket_is_shown(catalogue: Catalogue) -> None:
    """What was accepted for another cause, such as the addresses of a slice, stands under what is not free."""
    (line,) = billed(catalogue, *run(reason="no VPN here"))
    assert (line.what, line.note) == ("accepted around a covered TPU", "accepted: no VPN here")


def test_the_report_fits_and_says_so(catalogue: Catalogue) -> None:
    """The log's table has the line, its dollars, and the source of the rate."""
    text = text_report(fold(run(Transfer(RUNS, "EUROPE-WEST4", outward=True)), catalogue, NOW))
    assert "artifacts to EUROPE-WEST4" in text
    assert "USD 0.3600" in text
    assert "read 2026-11-28" in text
    assert max(map(len, text.splitlines())) <= 100
