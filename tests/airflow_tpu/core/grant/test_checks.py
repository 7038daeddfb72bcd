# SPDX-License-Identifier: Apache-2.0
"""Room that only runs of the same Airflow use is waited for; all other room that is taken is a refusal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.grant.authorize import authorize
from airflow_tpu.core.grant.create_request import Request
from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.core.grant.inventory import Inventory, InventoryItem
from airflow_tpu.core.tpu.resource_name import node_name
from airflow_tpu.core.tpu.spec import Tier, TPUSpec
from airflow_tpu.errors import GrantError, GrantExpired, GrantUnknown, GrantViolation, RowInUse
from tests.airflow_tpu.core.grant.accepted import completed
from tests.airflow_tpu.identities import AIRFLOW, OTHER_AIRFLOW

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
ZONE = "us-central1-f"
ROW = 5
"""On-demand v2-8 devices of the local grant."""

Held = Callable[..., tuple[InventoryItem, ...]]


@pytest.fixture
def asked(catalogue: Catalogue) -> Request:
    """One on-demand v2-8 for a run of this Airflow."""
    kind = catalogue.types["v2-8"]
    spec = TPUSpec("local-project", ZONE, kind.name, kind.default_runtime, Tier.ON_DEMAND, internal_ips=True)
    return Request(spec, kind, NOW + timedelta(hours=3), owner="0" * 10, airflow=AIRFLOW)


def held(count: int, airflow: str = AIRFLOW, alive: bool = True) -> tuple[InventoryItem, ...]:
    """TPUs of so many runs of an Airflow, of none without one."""
    owner = "run-{}-" + airflow if airflow else None
    return tuple(
        InventoryItem(
            node_name("p", ZONE, f"{airflow or 'foreign'}-{number}"),
            "v2-8",
            Tier.ON_DEMAND,
            ZONE,
            owner and owner.format(number),
            alive=alive,
            airflow=airflow,
        )
        for number in range(count)
    )


def refusal(grant: Grant, request: Request, *items: InventoryItem) -> GrantError:
    """The error of a request."""
    with pytest.raises(GrantError) as caught:
        authorize(grant, request, Inventory(items), NOW)
    return caught.value


@pytest.mark.parametrize("alive", [True, False])
def test_room_of_our_own_runs_is_waited_for(local_grant: Grant, asked: Request, alive: bool) -> None:
    """A row that runs of this Airflow fill is no violation; who uses it is named, also what is dead and undeleted."""
    error = refusal(local_grant, asked, *held(ROW, alive=alive))
    assert type(error) is RowInUse
    for words in ("1 asked and 5 held are more than 5 on-demand v2-8 devices", f"{AIRFLOW}-0 (v2-8"):
        assert words in str(error)


@pytest.mark.parametrize("others", [held(ROW, OTHER_AIRFLOW), held(ROW, "")])
def test_room_of_others_is_a_refusal(local_grant: Grant, asked: Request, others: tuple[InventoryItem, ...]) -> None:
    """What another Airflow holds, or a person, may stay for ever."""
    assert type(refusal(local_grant, asked, *others)) is GrantViolation


def test_one_of_ours_is_enough_to_wait_for(local_grant: Grant, asked: Request) -> None:
    """Beside four of other people's the fifth device comes back when our run ends."""
    assert type(refusal(local_grant, asked, *held(ROW - 1, ""), *held(1))) is RowInUse


def test_more_than_the_row_is_never_waited_for(local_grant: Grant, asked: Request, catalogue: Catalogue) -> None:
    """A TPU that would not fit the empty row is refused, however many runs of ours are in it."""
    kind = catalogue.types["v4-128"]
    spec = replace(asked.spec, zone="us-central2-b", accelerator_type=kind.name, runtime_version=kind.default_runtime)
    ours = [replace(item, accelerator_type="v4-64", zone="us-central2-b") for item in held(1)]
    assert kind.chips == 64
    error = refusal(local_grant, replace(asked, spec=spec, accelerator=kind), *ours)
    assert type(error) is GrantViolation
    assert "64 asked and 32 held are more than 32 on-demand v4 chips" in str(error)


def test_what_ends_only_after_the_run_is_not_waited_for(local_grant: Grant, asked: Request) -> None:
    """The TPU of a session that the run is inside of is a refusal that says so; with another of ours it waits."""
    ours = held(ROW)
    inside = replace(asked, around=frozenset({str(item.owner) for item in ours}))
    error = refusal(local_grant, inside, *ours)
    assert type(error) is GrantViolation
    assert f"{AIRFLOW}-0 (v2-8)" in str(error)
    assert "is of the session around this one, which ends only after it" in str(error)
    some = replace(asked, around=frozenset({str(item.owner) for item in ours[1:]}))
    assert type(refusal(local_grant, some, *ours)) is RowInUse


@pytest.mark.parametrize(
    ("against", "kind"),
    [
        ({"planned_end": datetime(2040, 1, 1, tzinfo=UTC)}, GrantExpired),
        ({"bucket_locations": {"gs://a/b": "EU"}}, GrantViolation),
        ({"bucket_locations": {"gs://a/b": None}}, GrantUnknown),
        ({"project_number": "1"}, GrantViolation),
    ],
)
def test_another_reason_is_a_refusal_at_once(
    local_grant: Grant, asked: Request, against: dict[str, object], kind: type[GrantError]
) -> None:
    """Nobody waits for room who is refused then all the same; every reason is named now."""
    error = refusal(local_grant, replace(asked, **against), *held(ROW))  # type: ignore[arg-type]
    assert type(error) is kind
    assert [fault.field for fault in error.faults if "held" in fault.problem] == ["devices"]


def test_an_accepted_bill_beside_the_tpu_waits(local_grant: Grant, asked: Request) -> None:
    """Who has accepted the traffic waits for a covered TPU; who has accepted the TPU's price too gets one at once."""
    elsewhere = replace(asked, bucket_locations={"gs://a/b": "EU"})
    traffic = replace(elsewhere, paid_reason=completed(refusal(local_grant, elsewhere), "the data is there"))
    assert authorize(local_grant, traffic, Inventory(held(ROW - 1)), NOW).allowance is not None
    assert type(refusal(local_grant, traffic, *held(ROW))) is RowInUse
    both = replace(elsewhere, paid_reason=completed(refusal(local_grant, elsewhere, *held(ROW)), "it is urgent"))
    assert authorize(local_grant, both, Inventory(held(ROW)), NOW).allowance is None
