# SPDX-License-Identifier: Apache-2.0
"""Exactly what the letter allows passes, for any request and any inventory."""

from __future__ import annotations

from datetime import datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.grant.allowance import Allowance
from airflow_tpu.core.grant.authorize import Permit, authorize
from airflow_tpu.core.grant.create_request import Request
from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.core.grant.inventory import Inventory, InventoryItem
from airflow_tpu.core.tpu.resource_name import node_name
from airflow_tpu.core.tpu.spec import Tier, TPUSpec
from airflow_tpu.errors import GrantError

OURS = "0123456789"
KINDS = ["v2-8", "v2-32", "v3-8", "v4-8", "v4-32", "v4-64", "v5litepod-1", "v5litepod-8", "v5litepod-64", "v6e-8"]
ZONES = ["us-central1-f", "us-central1-a", "us-central2-b", "europe-west4-b"]
CHIPS = {"v2-8": 4, "v2-32": 16, "v3-8": 4, "v4-8": 4, "v4-32": 16, "v4-64": 32}
CHIPS |= {"v5litepod-1": 1, "v5litepod-8": 8, "v5litepod-64": 64, "v6e-8": 8}
SLICES = ("v2-32", "v4-32", "v4-64", "v5litepod-64")
GENERATION = {kind: {"v5litepod": "v5e"}.get(kind.split("-")[0], kind.split("-")[0]) for kind in KINDS}
GRANTED = [
    ("v2-8", "us-central1-f", Tier.ON_DEMAND),
    ("v2-8", "us-central1-f", Tier.PREEMPTIBLE),
    ("v5litepod-64", "us-central1-a", Tier.SPOT),
    ("v5litepod-8", "europe-west4-b", Tier.SPOT),
    ("v4-64", "us-central2-b", Tier.ON_DEMAND),
]
tiers = st.sampled_from(list(Tier))
held_items = st.lists(
    st.builds(
        InventoryItem,
        st.just(node_name("p", "z", "n")),
        st.sampled_from(KINDS),
        tiers,
        st.sampled_from(ZONES),
        st.sampled_from([None, OURS, "fedcba9876"]),
        st.booleans(),
    ),
    max_size=12,
)


def really_covers(row: Allowance, kind: str, zone: str, tier: Tier, held: list[InventoryItem]) -> bool:
    """The rule of the letter, written down once more and as plainly as possible."""
    spot = tier != "on-demand"
    matching = (kind,) if row.accelerator_type else tuple(one for one in KINDS if GENERATION[one] == row.generation)
    if (
        row.accelerator_type not in ("", kind)
        or kind not in matching
        or zone != row.zone
        or spot != (row.tier == "spot")
    ):
        return False
    used = 0
    for item in held:
        same_pool = item.zone == row.zone and (item.tier != "on-demand") == spot
        if same_pool and item.owner != OURS and item.accelerator_type in (row.accelerator_type or matching):
            used += 1 if row.unit == "devices" else CHIPS[item.accelerator_type]
    return used + (1 if row.unit == "devices" else CHIPS[kind]) <= row.count


@settings(max_examples=300)
@given(
    asked=st.one_of(st.sampled_from(GRANTED), st.tuples(st.sampled_from(KINDS), st.sampled_from(ZONES), tiers)),
    held=held_items,
    minutes=st.sampled_from([-5, 0, 0, 1]),
    location=st.sampled_from(["beside", "beside", "beside", "EUROPE-WEST1", None]),
    inside=st.sampled_from([True, True, False]),
)
def test_exactly_what_the_letter_allows(
    local_grant: Grant,
    catalogue: Catalogue,
    asked: tuple[str, str, Tier],
    held: list[InventoryItem],
    minutes: int,
    location: str | None,
    inside: bool,
) -> None:
    """For any request and any inventory, a permit is given if and only if the letter covers it without a bill."""
    kind, zone, tier = asked
    location = zone[:-2].upper() if location == "beside" else location
    now = local_grant.ends_at - timedelta(hours=3)
    request = Request(
        TPUSpec("local-project", zone, kind, catalogue.types[kind].default_runtime, tier, internal_ips=inside),
        catalogue.types[kind],
        planned_end=local_grant.ends_at + timedelta(minutes=minutes),
        bucket_locations={"gs://a/b": location},
        owner=OURS,
    )
    allowed = any(really_covers(row, kind, zone, tier, held) for row in local_grant.allowances)
    allowed = allowed and minutes <= 0 and (location or "").lower() == zone[:-2] and (inside or kind not in SLICES)
    answer = permit_or_error(local_grant, request, Inventory(tuple(held)), now)
    assert isinstance(answer, Permit) == allowed


def permit_or_error(grant: Grant, request: Request, inventory: Inventory, now: datetime) -> Permit | GrantError:
    """The permit, or the one kind of error that authorize may raise."""
    try:
        return authorize(grant, request, inventory, now)
    except GrantError as error:
        return error
