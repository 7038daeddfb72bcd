# SPDX-License-Identifier: Apache-2.0
"""What a request costs, and that a person accepts exactly what was shown: what, how much, until when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from airflow_tpu.core.catalogue.catalogue import Catalogue, Price
from airflow_tpu.core.catalogue.transfer_rates import StoredSize
from airflow_tpu.core.grant.authorize import authorize
from airflow_tpu.core.grant.create_request import Request
from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.core.grant.inventory import Inventory
from airflow_tpu.core.tpu.spec import Tier, TPUSpec
from airflow_tpu.errors import GrantError
from tests.airflow_tpu.core.grant.accepted import completed

NOW = datetime(2026, 11, 27, 12, 20, tzinfo=UTC)
PRICE = Price(Decimal("2.20"), "price list", "2026-10-16")
Ask = Callable[..., Request]


@pytest.fixture
def ask(catalogue: Catalogue) -> Ask:
    """A request of three hours for an on-demand v3-8, which no row covers, or with changes."""

    def request(kind: str = "v3-8", zone: str = "us-central1-a", tier: Tier = Tier.ON_DEMAND, **more: Any) -> Request:
        accelerator = catalogue.types[kind]
        internal, hours = more.pop("internal_ips", True), more.pop("hours", 3)
        spec = TPUSpec("local-project", zone, kind, accelerator.default_runtime, tier, internal_ips=internal)
        end = more.pop("now", NOW) + timedelta(hours=hours)
        return Request(spec, accelerator, end, **{"price": PRICE, "rates": catalogue.transfer, **more})

    return request


def refusal(grant: Grant, request: Request, now: datetime = NOW) -> GrantError:
    """Why a request is refused."""
    with pytest.raises(GrantError) as caught:
        authorize(grant, request, Inventory(), now)
    return caught.value


def complaints(grant: Grant, request: Request, now: datetime = NOW) -> list[str]:
    """What is wrong with the consent of a request that is refused."""
    return [fault.problem for fault in refusal(grant, request, now).faults if fault.field == "allow_paid_reason"]


def test_refusal_shows_what_how_much_and_until_when(local_grant: Grant, ask: Ask) -> None:
    """The TPU, its price for the hours of the run and the source; the line gives a day to answer, to the full hour."""
    what = "on-demand v3-8 in us-central1-a of local-project"
    assert str(refusal(local_grant, ask())).splitlines()[-4:] == [
        "What it would cost at most, until 2026-11-27 15:20 UTC:",
        f"  - {what}: 26.40 USD (4 chips for 3 h at 2.20 USD per chip-hour, price list, read 2026-10-16)",
        "To pay for it put this line into allow_paid_reason, with your reason for the dots. Amount and end are limits, "
        "which you may change; the end is at most 92 days ahead.",
        f"at most 26.40 USD a run until 2026-11-28T16:00Z for {what} because ...",
    ]


def test_everything_that_is_not_free_is_in_the_bill(local_grant: Grant, ask: Ask) -> None:
    """A slice outside the grant with addresses, a bucket elsewhere and one that cannot be read: four items."""
    places = {"gs://far/a": "EUROPE-WEST4", "gs://dark/b": None, "gs://near/c": "us-central1"}
    below = {"gs://far/a": StoredSize(10 * 1024**3)}
    asked = ask("v3-32", internal_ips=False, bucket_locations=places, below=below)
    lines = refusal(local_grant, asked).advice.splitlines()[1:5]
    assert [line.partition(" (")[0].strip(" -") for line in lines] == [
        "on-demand v3-32 in us-central1-a of local-project: 105.60 USD",
        "traffic with gs://far/a in EUROPE-WEST4: 1.20 USD",
        "traffic with gs://dark/b in an unknown place: unknown",
        "4 external addresses: 0.06 USD",
    ]
    line = completed(refusal(local_grant, asked), "it is due")
    assert line.startswith("at most 106.86 USD and an unknown amount a run")
    assert authorize(local_grant, replace(asked, paid_reason=line), Inventory(), NOW).paid_reason == line


@pytest.mark.parametrize("size", [None, StoredSize(0), StoredSize(10, complete=False)])
def test_traffic_that_is_not_counted_is_unknown(local_grant: Grant, ask: Ask, size: StoredSize | None) -> None:
    """What may not be listed, what is still to be written and a lower bound are unknown, never 0."""
    asked = ask("v2-8", "us-central1-f", bucket_locations={"gs://a/b": "EU"}, below={"gs://a/b": size})
    assert completed(refusal(local_grant, asked), "").startswith("an unknown amount a run until")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"zone": "us-central1-b"}, "not on-demand v3-8 in us-central1-b of local-project"),
        ({"tier": Tier.SPOT}, "not spot v3-8 in us-central1-a of local-project"),
        ({"kind": "v2-8"}, "not on-demand v2-8 in us-central1-a of local-project"),
        ({"hours": 4}, "accepts at most 26.40 USD a run, and this one may cost 35.20 USD"),
        ({"price": replace(PRICE, usd_per_chip_hour=Decimal("2.21"))}, "this one may cost 26.52 USD"),
        ({"price": None}, "accepts no unknown amount, and part of this bill is unknown"),
        ({"bucket_locations": {"gs://a/b": "EU"}}, "not traffic with gs://a/b in EU"),
        (
            {"now": NOW + timedelta(days=2)},
            "until 2026-11-28 16:00 UTC, and the run may last until 2026-11-29 15:20 UTC",
        ),
    ],
)
def test_consent_is_for_what_was_shown(local_grant: Grant, ask: Ask, changes: dict[str, Any], complaint: str) -> None:
    """Another TPU, more hours, a higher price, a bucket elsewhere or a later run needs another consent."""
    line = completed(refusal(local_grant, ask()), "it is due")
    assert authorize(local_grant, replace(ask(), paid_reason=line), Inventory(), NOW).paid_reason == line
    found = complaints(local_grant, ask(paid_reason=line, **changes), changes.get("now", NOW))
    assert any(complaint in problem for problem in found), found


def test_words_alone_accept_nothing(local_grant: Grant, ask: Ask) -> None:
    """A reason without the line of the refusal buys nothing."""
    (problem,) = complaints(local_grant, ask(paid_reason="the camera-ready is due"))
    assert "it must say what is paid for, how much and until when" in problem


def test_shorter_and_smaller_run_needs_no_other_consent(local_grant: Grant, ask: Ask) -> None:
    """Amount and end are limits: a run of one hour, and one of a bill with fewer items, is within them."""
    asked = ask(bucket_locations={"gs://a/b": "EU"}, below={"gs://a/b": StoredSize(1024**3)})
    line = completed(refusal(local_grant, asked), "it is due")
    assert authorize(local_grant, ask(hours=1, paid_reason=line), Inventory(), NOW).allowance is None


def test_nightly_run_is_paid_for_until_the_end_that_was_named(local_grant: Grant, ask: Ask) -> None:
    """One line with an end some weeks ahead serves every night until then, and no night after it."""
    line = completed(refusal(local_grant, ask()), "the nightly benchmark").replace(
        "2026-11-28T16:00Z", "2026-12-24T18:00Z"
    )
    for night in range(27):
        now = NOW + timedelta(days=night)
        assert authorize(local_grant, ask(now=now, paid_reason=line), Inventory(), now).paid_reason == line
    late = NOW + timedelta(days=28)
    (problem,) = complaints(local_grant, ask(now=late, paid_reason=line), late)
    assert "accepts a bill until 2026-12-24 18:00 UTC" in problem


def test_no_consent_is_for_ever(local_grant: Grant, ask: Ask) -> None:
    """An end more than a quarter ahead is refused."""
    line = completed(refusal(local_grant, ask()), "it is due").replace("2026-11-28T16:00Z", "2099-01-01T00:00Z")
    (problem,) = complaints(local_grant, ask(paid_reason=line))
    assert "more than 92 days ahead" in problem


def test_consent_for_traffic_does_not_outlast_the_grant(local_grant: Grant, ask: Ask) -> None:
    """A line that accepted a bucket elsewhere buys no TPU once the term is over."""
    granted = {"kind": "v2-8", "zone": "us-central1-f", "bucket_locations": {"gs://a/b": "EU"}}
    line = completed(refusal(local_grant, ask(**granted)), "the data set is 1 GB")
    over = replace(local_grant, days=30)
    assert "days" in [fault.field for fault in refusal(over, ask(**granted, paid_reason=line)).faults]
    assert (
        "not on-demand v2-8 in us-central1-f of local-project" in complaints(over, ask(**granted, paid_reason=line))[0]
    )
