# SPDX-License-Identifier: Apache-2.0
"""Nothing outside the grant passes, and everything inside does."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.grant.authorize import Permit, authorize
from airflow_tpu.core.grant.create_request import Request
from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.core.grant.inventory import Inventory, InventoryItem
from airflow_tpu.core.tpu.identity import KnownAirflow
from airflow_tpu.core.tpu.resource_name import node_name
from airflow_tpu.core.tpu.spec import Tier, TPUSpec
from airflow_tpu.errors import Fault, GrantError, GrantExpired, GrantUnknown, GrantViolation
from tests.airflow_tpu.core.grant import two_rows
from tests.airflow_tpu.core.grant.accepted import completed
from tests.airflow_tpu.shipped import GENERATIONS

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
OURS = "0123456789"
EMPTY = Inventory()


def request_for(catalogue: Catalogue, kind: str, zone: str, tier: Tier, **more: Any) -> Request:
    """A request of three hours in the local project, without buckets and external addresses unless given."""
    accelerator, project = catalogue.types[kind], more.pop("project", "local-project")
    runtime, internal = more.pop("runtime", accelerator.default_runtime), more.pop("internal_ips", True)
    spec = TPUSpec(project, zone, kind, runtime, tier, internal_ips=internal)
    return Request(spec, accelerator, more.pop("planned_end", NOW + timedelta(hours=3)), owner=OURS, **more)


def on_demand(catalogue: Catalogue, **more: Any) -> Request:
    """A request that the local grant covers."""
    return request_for(catalogue, "v2-8", "us-central1-f", Tier.ON_DEMAND, **more)


def faults_of(grant: Grant, request: Request, inventory: Inventory = EMPTY, now: datetime = NOW) -> dict[str, Fault]:
    """The reasons against a request, by field."""
    with pytest.raises(GrantError) as caught:
        authorize(grant, request, inventory, now)
    return {fault.field: fault for fault in caught.value.faults}


def accepting(grant: Grant, request: Request, now: datetime = NOW) -> Request:
    """The request with the line that its refusal prints, as a person completes it."""
    with pytest.raises(GrantError) as caught:
        authorize(grant, request, EMPTY, now)
    return replace(request, paid_reason=completed(caught.value, "the camera-ready is due"))


def items(count: int, kind: str = "v2-8", tier: Tier = Tier.ON_DEMAND, **more: Any) -> tuple[InventoryItem, ...]:
    """A colleague's nodes."""
    zone, owner = more.pop("zone", "us-central1-f"), more.pop("owner", None)
    return tuple(InventoryItem(node_name("p", zone, f"n{i}"), kind, tier, zone, owner, **more) for i in range(count))


@pytest.mark.parametrize(
    ("kind", "zone", "tier", "row", "chips"),
    [
        ("v2-8", "us-central1-f", Tier.ON_DEMAND, "5 on-demand v2-8 devices in us-central1-f", 4),
        ("v2-8", "us-central1-f", Tier.PREEMPTIBLE, "100 spot v2-8 devices in us-central1-f", 4),
        ("v5litepod-64", "europe-west4-b", Tier.SPOT, "64 spot v5e chips in europe-west4-b", 64),
        ("v4-64", "us-central2-b", Tier.ON_DEMAND, "32 on-demand v4 chips in us-central2-b", 32),
    ],
)
def test_what_is_covered(
    local_grant: Grant, catalogue: Catalogue, kind: str, zone: str, tier: Tier, row: str, chips: int
) -> None:
    """A permit names the row that covers the TPU."""
    permit = authorize(local_grant, request_for(catalogue, kind, zone, tier), Inventory(), NOW)
    assert (permit.allowance_text, permit.chips, permit.reasons, permit.paid_reason) == (row, chips, (), "")


def test_names_of_others_are_read_only_for_a_refusal(local_grant: Grant, catalogue: Catalogue) -> None:
    """A permit costs no request; a refusal because of another Airflow one, and because of this one's own TPUs none."""
    asked: list[str] = []

    def names() -> dict[str, KnownAirflow]:
        asked.append("")
        return {"b2": KnownAirflow("b2", "prod", "", NOW)}

    request = on_demand(catalogue, airflow="a1", names=names)
    authorize(local_grant, request, Inventory(items(4, airflow="b2")), NOW)
    faults_of(local_grant, request, Inventory(items(5, airflow="a1")))
    assert asked == []
    (fault,) = faults_of(local_grant, request, Inventory(items(5, airflow="b2"))).values()
    assert asked == [""]
    assert "n4 (v2-8) of Airflow 'prod' (b2)" in str(fault)


# A grant of 2019, and what its holders ask for by mistake: (type, zone, tier) and the nearest valid value per field.
LETTER_2019 = [
    {"count": 100, "unit": "devices", "tier": "preemptible", "type": "v3-8", "zone": "us-central1-a"},
    {"count": 5, "unit": "devices", "tier": "on-demand", "type": "v2-8", "zone": "us-central1-f"},
]


@pytest.mark.parametrize(
    ("kind", "zone", "tier", "nearest"),
    [
        ("v3-8", "us-central1-f", Tier.ON_DEMAND, {"zone": "us-central1-a", "tier": "spot"}),
        ("v3-8", "us-central1-a", Tier.ON_DEMAND, {"tier": "spot"}),
        ("v2-8", "us-central1-b", Tier.ON_DEMAND, {"zone": "us-central1-f"}),
        ("v2-8", "us-central1-f", Tier.SPOT, {"tier": "on-demand"}),
        ("v3-32", "us-central1-a", Tier.SPOT, {"accelerator_type": "v3-8"}),
        (
            "v4-8",
            "us-central2-b",
            Tier.ON_DEMAND,
            {"accelerator_type": "v2-8", "zone": "us-central1-f"},
        ),
    ],
)
def test_what_is_not_covered_and_the_nearest_that_is(
    local_grant: Grant, catalogue: Catalogue, kind: str, zone: str, tier: Tier, nearest: dict[str, str]
) -> None:
    """Each differing field is named, and taking the nearest values gives a request that passes."""
    grant = Grant.parse({**local_grant.to_json(), "allowances": LETTER_2019}, GENERATIONS)
    faults = faults_of(grant, request_for(catalogue, kind, zone, tier))
    assert {field: fault.nearest for field, fault in faults.items()} == nearest
    mended = request_for(
        catalogue, nearest.get("accelerator_type", kind), nearest.get("zone", zone), Tier(nearest.get("tier", tier))
    )
    assert authorize(grant, mended, Inventory(), NOW).allowance is not None


def test_devices_cannot_form_pods(local_grant: Grant, catalogue: Catalogue) -> None:
    """A hundred v2-8 are not a v2-32."""
    faults = faults_of(local_grant, request_for(catalogue, "v2-32", "us-central1-f", Tier.SPOT))
    assert "cannot form pods" in faults["accelerator_type"].problem


def test_the_sixth_of_five_is_refused(local_grant: Grant, catalogue: Catalogue) -> None:
    """All nodes of the project count, and the holders and another row with room are named."""
    fault = faults_of(local_grant, on_demand(catalogue), Inventory(items(5)))["devices"]
    assert "1 asked and 5 held are more than 5 on-demand v2-8 devices" in fault.problem
    assert "n0 (v2-8)" in fault.problem
    assert fault.nearest == "100 spot v2-8 devices in us-central1-f"
    assert authorize(local_grant, on_demand(catalogue), Inventory(items(4)), NOW).allowance is not None


@pytest.mark.parametrize("devices", [1, 5])
def test_two_rows_for_one_type_add_up(local_grant: Grant, catalogue: Catalogue, devices: int) -> None:
    """A device row and a chips row of its generation cover as many TPUs as both have room for, devices first."""
    grant = two_rows.two_rows(local_grant, devices)
    request = request_for(catalogue, two_rows.KIND, two_rows.ZONE, Tier.SPOT)
    by_row = [authorize(grant, request, Inventory(two_rows.alive(held)), NOW).allowance for held in range(devices + 1)]
    assert by_row == [grant.allowances[1]] * devices + [grant.allowances[0]]
    faults = faults_of(grant, request, Inventory(two_rows.alive(devices + 1)))
    assert set(faults) == {"devices", "chips"}
    assert f"1 asked and {devices} held" in faults["devices"].problem
    assert "8 asked and 8 held" in faults["chips"].problem


def test_the_dead_hold_quota(local_grant: Grant, catalogue: Catalogue) -> None:
    """A dead queued resource counts until it is deleted, and the message says what to do."""
    faults = faults_of(local_grant, on_demand(catalogue), Inventory(items(5, alive=False)))
    assert "delete it to free its chips" in faults["devices"].problem


def test_our_own_incarnation_does_not_count(local_grant: Grant, catalogue: Catalogue) -> None:
    """Re-creating the run's own TPU is not one more."""
    inventory = Inventory((*items(4), *items(1, owner=OURS)))
    assert authorize(local_grant, on_demand(catalogue), inventory, NOW).allowance is not None


def test_chips_are_counted_not_the_name(local_grant: Grant, catalogue: Catalogue) -> None:
    """Thirty-two v4 chips are a v4-64; with a v4-32 there, another of 16 chips fits and one of 32 does not."""
    held = Inventory(items(1, "v4-32", Tier.SPOT, zone="us-central2-b"))
    fits = request_for(catalogue, "v4-32", "us-central2-b", Tier.SPOT)
    assert authorize(local_grant, fits, held, NOW).chips == 16
    faults = faults_of(local_grant, request_for(catalogue, "v4-64", "us-central2-b", Tier.SPOT), held)
    assert "32 asked and 16 held" in faults["chips"].problem


def test_when_nothing_else_fits_the_free_rest_is_named(local_grant: Grant, catalogue: Catalogue) -> None:
    """With every row of the type full, the message says how much is left."""
    zones = ("europe-west4-b", "us-central1-a")
    held = Inventory(tuple(item for zone in zones for item in items(7, "v5litepod-8", Tier.SPOT, zone=zone)))
    faults = faults_of(local_grant, request_for(catalogue, "v5litepod-16", zones[0], Tier.SPOT), held)
    assert faults["chips"].nearest == "8 chips are free"


def test_many_holders_are_not_all_listed(local_grant: Grant, catalogue: Catalogue) -> None:
    """Five names and a count are enough."""
    request = request_for(catalogue, "v2-8", "us-central1-f", Tier.SPOT)
    faults = faults_of(local_grant, request, Inventory(items(100, tier=Tier.SPOT)))
    assert "and 95 more" in faults["devices"].problem


def test_an_unreachable_zone_is_unknown(local_grant: Grant, catalogue: Catalogue) -> None:
    """An empty list of a zone that did not answer is no proof that nothing runs there."""
    inventory = Inventory((), ("projects/p/locations/us-central1-f",))
    with pytest.raises(GrantUnknown, match="did not answer"):
        authorize(local_grant, on_demand(catalogue), inventory, NOW)
    elsewhere = Inventory((), ("us-east1-d",))
    assert authorize(local_grant, on_demand(catalogue), elsewhere, NOW).allowance is not None


def test_a_type_nobody_can_count_is_unknown(local_grant: Grant, catalogue: Catalogue) -> None:
    """A node of an unheard-of type in the same pool might use the same quota."""
    with pytest.raises(GrantUnknown, match="cannot be counted"):
        authorize(local_grant, on_demand(catalogue), Inventory(items(1, "v9-8")), NOW)


@pytest.mark.parametrize(
    ("now", "planned_hours", "field"),
    [
        (datetime(2025, 12, 31, 23, 59, tzinfo=UTC), 1, "start"),
        (datetime(2035, 12, 30, tzinfo=UTC), 1, "days"),
        (datetime(2035, 12, 29, 22, tzinfo=UTC), 3, "deadline_hours"),
    ],
)
def test_the_term(local_grant: Grant, catalogue: Catalogue, now: datetime, planned_hours: int, field: str) -> None:
    """Before the start, after the end, and across the end, nothing is created."""
    request = on_demand(catalogue, planned_end=now + timedelta(hours=planned_hours))
    with pytest.raises(GrantExpired) as caught:
        authorize(local_grant, request, Inventory(), now)
    assert [fault.field for fault in caught.value.faults] == [field]


def test_up_to_the_last_instant(local_grant: Grant, catalogue: Catalogue) -> None:
    """A run that ends with the grant is inside it."""
    request = on_demand(catalogue, planned_end=local_grant.ends_at)
    assert authorize(local_grant, request, Inventory(), local_grant.ends_at - timedelta(hours=1)).allowance is not None


@pytest.mark.parametrize(
    ("more", "field"),
    [({"project": "other-project"}, "project_id"), ({"project_number": "100000000002"}, "project_number")],
)
def test_another_project(local_grant: Grant, catalogue: Catalogue, more: dict[str, str], field: str) -> None:
    """The grant is tied to one project, by id and number."""
    assert list(faults_of(local_grant, on_demand(catalogue, **more))) == [field]


@pytest.mark.parametrize("location", ["US-CENTRAL1", "us-central1"])
def test_a_bucket_beside_the_tpu(local_grant: Grant, catalogue: Catalogue, location: str) -> None:
    """A bucket in the TPU's region costs no traffic."""
    request = on_demand(catalogue, bucket_locations={"gs://a/b": location}, project_number="100000000001")
    assert authorize(local_grant, request, Inventory(), NOW).reasons == ()


@pytest.mark.parametrize("location", ["EUROPE-WEST4", "US", "EU", "NAM4", "US-CENTRAL2"])
def test_a_bucket_elsewhere(local_grant: Grant, catalogue: Catalogue, location: str) -> None:
    """Traffic between regions made the largest bill known of a grantee; a multi-region is not the region."""
    request = on_demand(catalogue, bucket_locations={"gs://a/b": "US-CENTRAL1", "gs://c/d": location})
    fault = faults_of(local_grant, request)["bucket"]
    assert (fault.value, fault.nearest) == ("gs://c/d", "US-CENTRAL1")


def test_a_bucket_that_may_not_be_read(local_grant: Grant, catalogue: Catalogue) -> None:
    """An unknown location is not taken for a good one."""
    with pytest.raises(GrantUnknown, match="may not be read"):
        authorize(local_grant, on_demand(catalogue, bucket_locations={"gs://a/b": None}), Inventory(), NOW)


def test_every_reason_at_once(local_grant: Grant, catalogue: Catalogue) -> None:
    """Type, project, term and bucket are all named in one error, which is a violation."""
    request = request_for(
        catalogue,
        "v3-8",
        "us-east1-d",
        Tier.ON_DEMAND,
        project="other-project",
        planned_end=local_grant.ends_at + timedelta(days=1),
        bucket_locations={"gs://a/b": "EU", "gs://c/d": None},
    )
    with pytest.raises(GrantViolation) as caught:
        authorize(local_grant, request, Inventory(), NOW)
    fields = [fault.field for fault in caught.value.faults]
    assert {"project_id", "deadline_hours", "bucket"} < set(fields)
    assert fields.count("bucket") == 2


@pytest.mark.parametrize(("tier", "usd"), [(Tier.SPOT, "0.0025"), (Tier.ON_DEMAND, "0.005")])
def test_a_slice_asks_for_internal_addresses(local_grant: Grant, catalogue: Catalogue, tier: Tier, usd: str) -> None:
    """Each worker of a covered slice would have an address that is billed; without addresses it passes."""
    request = request_for(catalogue, "v4-64", "us-central2-b", tier, internal_ips=False)
    faults = faults_of(local_grant, request)
    assert list(faults) == ["internal_ips"]
    assert f"8 workers an external IPv4 address: {usd} USD an hour each" in faults["internal_ips"].problem
    assert faults["internal_ips"].nearest == "true"
    inside = request_for(catalogue, "v4-64", "us-central2-b", tier, internal_ips=True)
    assert authorize(local_grant, inside, EMPTY, NOW).allowance is not None


def test_one_worker_may_have_an_address(local_grant: Grant, catalogue: Catalogue) -> None:
    """One address is what a laptop needs to reach the TPU; the report lists it under what is not free."""
    assert authorize(local_grant, on_demand(catalogue, internal_ips=False), EMPTY, NOW).reasons == ()


def test_addresses_can_be_accepted(local_grant: Grant, catalogue: Catalogue) -> None:
    """With its bill accepted a slice gets its addresses; the TPU itself stays covered."""
    request = request_for(catalogue, "v4-64", "us-central2-b", Tier.SPOT, internal_ips=False)
    permit = authorize(local_grant, accepting(local_grant, request), EMPTY, NOW)
    assert permit.allowance_text == "32 spot v4 chips in us-central2-b"
    assert "NOT FREE: internal_ips = False" in str(permit)


def test_every_reason_against_a_slice_at_once(local_grant: Grant, catalogue: Catalogue) -> None:
    """A slice of devices with an image for one worker, addresses and a bucket elsewhere: four reasons, one error."""
    more = {"internal_ips": False, "runtime": "tpu-vm-tf-2.18.0-pjrt", "bucket_locations": {"gs://a/b": "EU"}}
    faults = faults_of(local_grant, request_for(catalogue, "v2-32", "us-central1-f", Tier.SPOT, **more))
    assert list(faults) == ["accelerator_type", "runtime_version", "bucket", "internal_ips"]
    assert faults["runtime_version"].nearest == "tpu-vm-tf-2.18.0-pod-pjrt"


@pytest.mark.parametrize("reason", ["", "the money is there"])
@pytest.mark.parametrize(
    ("runtime", "nearest"),
    [
        ("tpu-vm-tf-2.14.0", "tpu-vm-tf-2.14.1"),
        ("2.18", "tpu-vm-tf-2.18.0-pjrt"),
        ("v2-alpha-tpuv6e", None),
        ("tpu-vm-tf-2.18.0-pod-pjrt", "tpu-vm-tf-2.18.0-pjrt"),
    ],
)
def test_a_runtime_version_that_does_not_run(
    local_grant: Grant, catalogue: Catalogue, runtime: str, nearest: str | None, reason: str
) -> None:
    """Of no version, of another generation or for slices: refused with the nearest one, and no reason buys it."""
    faults = faults_of(local_grant, on_demand(catalogue, runtime=runtime, paid_reason=reason))
    assert list(faults) == ["runtime_version"]
    assert nearest is None or faults["runtime_version"].nearest == nearest
    assert "tpu-ubuntu2204-base" in faults["runtime_version"].allowed


def test_an_accepted_bill_buys_what_is_not_covered(local_grant: Grant, catalogue: Catalogue) -> None:
    """With its bill accepted the TPU may be created; the permit has no row and says everything that is not free."""
    request = request_for(catalogue, "v3-8", "us-central1-a", Tier.ON_DEMAND)
    permit = authorize(local_grant, accepting(local_grant, request), Inventory(), NOW)
    assert permit.allowance is None
    assert permit.paid_reason.endswith("because the camera-ready is due")
    assert permit.reasons
    assert "NOT covered" in str(permit)


@pytest.mark.parametrize("days_after_the_end", [0, 30])
def test_an_accepted_bill_does_not_bring_the_grant_back(
    local_grant: Grant, catalogue: Catalogue, days_after_the_end: int
) -> None:
    """After the term, a TPU of a granted type is a paid one, and is booked as one."""
    now = local_grant.ends_at + timedelta(days=days_after_the_end)
    request = on_demand(catalogue, planned_end=now + timedelta(hours=1))
    permit = authorize(local_grant, accepting(local_grant, request, now), EMPTY, now)
    assert permit.allowance is None
    assert permit.paid_reason.endswith("because the camera-ready is due")


def test_a_reason_for_traffic_leaves_the_tpu_covered(local_grant: Grant, catalogue: Catalogue) -> None:
    """Accepting a bucket elsewhere does not make the TPU itself a paid one."""
    request = on_demand(catalogue, bucket_locations={"gs://a/b": "EU"})
    permit = authorize(local_grant, accepting(local_grant, request), Inventory(), NOW)
    assert permit.allowance_text == "5 on-demand v2-8 devices in us-central1-f"
    assert "NOT FREE" in str(permit)
    assert "the camera-ready is due" in str(permit)


def test_a_reason_is_not_used_where_all_is_covered(local_grant: Grant, catalogue: Catalogue) -> None:
    """A covered TPU is not booked as a paid one because the field was filled in."""
    permit = authorize(local_grant, on_demand(catalogue, paid_reason="to be safe"), Inventory(), NOW)
    assert (permit.paid_reason, permit.reasons) == ("", ())
    assert "covered by 5 on-demand" in str(permit)


def test_a_permit_cannot_be_forged(local_grant: Grant, catalogue: Catalogue) -> None:
    """Neither a call nor a copy with changes makes a permit."""
    permit = authorize(local_grant, on_demand(catalogue), Inventory(), NOW)
    with pytest.raises(TypeError, match="authorize"):
        Permit(permit.spec, permit.allowance, permit.chips)
    with pytest.raises(TypeError, match="authorize"):
        replace(permit, chips=0)
    assert copy.copy(permit) == permit


def test_a_permit_is_for_one_tpu(local_grant: Grant, catalogue: Catalogue) -> None:
    """A permit for one TPU does not create another."""
    permit = authorize(local_grant, on_demand(catalogue), Inventory(), NOW)
    permit.check(permit.spec)
    with pytest.raises(GrantViolation, match="not what was permitted"):
        permit.check(replace(permit.spec, zone="us-east1-d"))


def test_a_permit_can_be_shown(local_grant: Grant, catalogue: Catalogue) -> None:
    """Its JSON form says what it is for and why."""
    shown = json.loads(json.dumps(authorize(local_grant, on_demand(catalogue), Inventory(), NOW).to_json()))
    assert shown["allowance"] == "5 on-demand v2-8 devices in us-central1-f"
    assert shown["spec"]["accelerator_type"] == "v2-8"
