# SPDX-License-Identifier: Apache-2.0
"""What runs have taken from the grant before the API can show it: counted once, until it expires."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.grant.authorize import authorize
from airflow_tpu.core.grant.create_request import Request
from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.core.grant.inventory import Inventory, InventoryItem
from airflow_tpu.core.grant.reservations import RESERVATIONS_FORM, Reservation, Reservations
from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.core.tpu.resource_name import node_name
from airflow_tpu.core.tpu.spec import Tier, TPUSpec
from airflow_tpu.errors import GrantUnknown, GrantViolation, RowInUse
from tests.airflow_tpu.core.grant import two_rows
from tests.airflow_tpu.identities import AIRFLOW

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
ZONE = "us-central1-f"
OURS = RunKey(AIRFLOW, "tpu_train", "ours")


def spec(kind: str = "v2-8", zone: str = ZONE, tier: Tier = Tier.ON_DEMAND) -> TPUSpec:
    """A TPU of the local project."""
    return TPUSpec("local-project", zone, kind, "tpu-vm-tf-2.17.1-pjrt", tier)


def reservation(number: int, wanted: TPUSpec | None = None, hours: float = 3.0) -> Reservation:
    """What the run of that number has reserved."""
    return Reservation.of(
        RunKey(AIRFLOW, "tpu_train", f"run {number}"), wanted or spec(), 4, NOW + timedelta(hours=hours)
    )


def many(count: int, **more: Any) -> Reservations:
    """Reservations of so many runs."""
    return Reservations(tuple(reservation(number, **more) for number in range(count)))


def item(entry: Reservation, **more: Any) -> InventoryItem:
    """The TPU that a reservation is for, once the API shows it."""
    return replace(entry.item, name=node_name("p", entry.zone, "n"), **more)


@pytest.fixture
def ask(local_grant: Grant, catalogue: Catalogue) -> Callable[..., str | None]:
    """Ask the local grant for one on-demand v2-8, of which there are five."""

    def asked(reserved: Reservations, inventory: Inventory | None = None, wanted: TPUSpec | None = None) -> str | None:
        wanted = wanted or spec()
        kind = catalogue.types[wanted.accelerator_type]
        request = Request(wanted, kind, NOW + timedelta(hours=3), owner=OURS.digest)
        return authorize(local_grant, request, inventory or Inventory(), NOW, reserved).allowance_text

    return asked


def test_the_last_device_is_given_once(ask: Callable[..., str | None]) -> None:
    """Beside four reservations the fifth device is free, beside five nothing is, and the refusal names a holder."""
    assert ask(many(4)) == "5 on-demand v2-8 devices in us-central1-f"
    with pytest.raises(GrantViolation, match=r"1 asked and 5 held .* reservation of tpu-train-\w+ \(v2-8\)"):
        ask(many(5))


def test_own_reservation_is_not_held_against_the_run(ask: Callable[..., str | None]) -> None:
    """A run that has reserved the last device may create it."""
    mine = Reservation.of(OURS, spec(), 4, NOW + timedelta(hours=3))
    assert ask(Reservations((*many(4).entries, mine)))


def test_reservation_and_its_tpu_count_once(ask: Callable[..., str | None]) -> None:
    """Four runs whose TPUs are visible hold four devices, not eight; a colleague's TPU counts beside them."""
    reserved = many(4)
    visible = tuple(item(entry) for entry in reserved.entries)
    assert ask(reserved, Inventory(visible))
    with pytest.raises(GrantViolation, match="5 held"):
        ask(reserved, Inventory((*visible, item(reserved.entries[0], owner=None))))


def test_a_terminated_node_of_another_kind_does_not_stand_for_the_reservation(ask: Callable[..., str | None]) -> None:
    """A run whose terminated node is in another zone holds its new reservation as well."""
    terminated = item(reservation(0), zone="us-central1-a", alive=False)
    with pytest.raises(GrantViolation, match="5 held"):
        ask(many(5), Inventory((terminated,)))


def test_a_reservation_belongs_to_one_row(local_grant: Grant, catalogue: Catalogue) -> None:
    """Where two rows are about a type, a reservation takes the device, and the chips are free for the next create."""
    grant, kind = two_rows.two_rows(local_grant, devices=1), catalogue.types[two_rows.KIND]
    wanted = spec(kind.name, two_rows.ZONE, Tier.SPOT)
    request = Request(wanted, kind, NOW + timedelta(hours=3), owner=OURS.digest)
    taken = [many(count, wanted=wanted) for count in range(3)]
    rows = [authorize(grant, request, Inventory(), NOW, reserved).allowance for reserved in taken[:2]]
    assert rows == [grant.allowances[1], grant.allowances[0]]
    with pytest.raises(GrantViolation, match="8 asked and 8 held"):
        authorize(grant, request, Inventory(), NOW, taken[2])


def test_expired_reservations_do_not_count(ask: Callable[..., str | None]) -> None:
    """A run that has disappeared holds no chips once its lease has ended, not one microsecond later."""
    assert ask(many(5, hours=0))
    with pytest.raises(GrantViolation):
        ask(many(5, hours=1e-9))


def test_other_rows_are_not_touched(ask: Callable[..., str | None]) -> None:
    """Spot devices and other zones have rows of their own; preemptible is spot."""
    assert ask(many(5, wanted=spec(tier=Tier.PREEMPTIBLE)))
    assert ask(many(5, wanted=spec("v5litepod-8", "us-central1-a", Tier.SPOT)))
    with pytest.raises(GrantViolation, match="64 held"):
        ask(
            many(8, wanted=spec("v5litepod-8", "us-central1-a", Tier.SPOT)),
            wanted=spec("v5litepod-1", "us-central1-a", Tier.SPOT),
        )


def test_taking_replaces_the_runs_older_one_and_forgets_the_expired() -> None:
    """The object holds at most one entry per run and does not grow for ever."""
    older, newer, gone = reservation(1), reservation(1, spec("v2-8", "us-central1-a")), reservation(2, hours=-1)
    assert Reservations((older, gone, reservation(3))).taken(newer, NOW).entries == (reservation(3), newer)


def test_renewed_reservation_is_not_dropped() -> None:
    """A reservation that the reaper has selected is removed only if it is still the same."""
    seen, renewed = reservation(1), reservation(1, hours=5)
    assert Reservations((seen, reservation(2))).without([seen]).entries == (reservation(2),)
    assert Reservations((renewed,)).without([seen]).entries == (renewed,)


def test_json_form_is_read_back() -> None:
    """What one run writes another run reads, to the last field."""
    reserved = many(3, wanted=spec(tier=Tier.PREEMPTIBLE)).queued(reservation(9), NOW)
    assert RESERVATIONS_FORM.from_json(json.loads(json.dumps(RESERVATIONS_FORM.to_json(reserved)))) == reserved


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data.pop("entries"),
        lambda data: data["entries"][0].pop("zone"),
        lambda data: data["entries"][0].update(tier="free"),
        lambda data: data["entries"][0].update(expires_at="2026-11-27T12:00:00"),
        lambda data: data["entries"].append("v2-8"),
    ],
)
def test_damaged_object_is_unknown_not_empty(spoil: Callable[[dict[str, Any]], None]) -> None:
    """An object that cannot be read stops every create and says what to do, because it may hold the whole grant."""
    data = RESERVATIONS_FORM.to_json(many(2))
    spoil(data)
    with pytest.raises(GrantUnknown, match="when no run is in progress, delete it"):
        RESERVATIONS_FORM.from_json(data)


def test_a_holder_is_named_as_airflow_shows_it(ask: Callable[..., str | None]) -> None:
    """What is reserved, and the TPU that came of it, are named with DAG, run id, session and index of their run."""
    key = RunKey(AIRFLOW, "tpu_train", "manual__1", 2, "one")
    mine = Reservation.of(key, spec(), 4, NOW + timedelta(hours=3))
    for found in (Inventory(), Inventory((item(mine),))):
        with pytest.raises(GrantViolation, match=r"\(v2-8\) of tpu_train manual__1 one\[2\]"):
            ask(Reservations((*many(4).entries, mine)), found)


def queue(*numbers: int, taken: int = 5) -> Reservations:
    """Reservations of so many runs, and others that wait, in this order."""
    found = Reservations(tuple(reservation(100 + number) for number in range(taken)))
    for number in numbers:
        found = found.queued(reservation(number), NOW)
    return found


def names_ahead(found: Reservations, number: int) -> list[str]:
    """Who comes before a run."""
    return [item.reserved_by for item in found.ahead_of(reservation(number).owner, AIRFLOW, NOW)]


def test_oldest_wait_comes_first() -> None:
    """A run keeps its place however often it asks, a newcomer is behind all, and who has chips waits for nobody."""
    found = queue(1, 2, 3, 1, 2)
    name = {number: reservation(number).run for number in range(5)}
    assert names_ahead(found, 1) == []
    assert names_ahead(found, 3) == [name[1], name[2]]
    assert names_ahead(found, 4) == [name[1], name[2], name[3]]
    assert names_ahead(found, 100) == []
    assert names_ahead(found.to_front(reservation(3).owner), 1) == [name[3]]


def test_a_wait_ends_with_what_it_is_for() -> None:
    """Taken, given back, dropped or expired, a place is gone; a wait for something else gives up what was taken."""
    found = queue(1, 2)
    assert names_ahead(found.taken(reservation(1), NOW), 3) == [reservation(2).run]
    assert names_ahead(found.without([reservation(1)]), 3) == [reservation(2).run]
    assert found.ahead_of("", AIRFLOW, NOW + timedelta(hours=4)) == ()
    moved = found.queued(reservation(100, spec("v2-8", "us-central1-a")), NOW)
    assert moved.of(reservation(100).owner) is None
    assert len(moved.entries) == 4


def test_a_wait_for_the_room_that_a_run_holds_keeps_it() -> None:
    """A row that others have overfilled refuses a run that is tried again too; its TPU may be alive all the same."""
    later = replace(reservation(100), expires_at=NOW + timedelta(hours=5))
    kept = queue(1).queued(later, NOW)
    assert kept.of(later.owner) == later
    assert (len(kept.entries), [entry.run for entry in kept.waiting]) == (5, [reservation(1).run])


def test_a_place_in_the_queue_is_no_chip(ask: Callable[..., str | None]) -> None:
    """Those who wait leave a device to a run that has reserved it, and are no reason to refuse another Airflow."""
    waits = queue(1, 2, taken=4)
    assert ask(waits)
    mine = Reservation.of(OURS, spec(), 4, NOW + timedelta(hours=3))
    assert ask(replace(waits, entries=(*waits.entries, mine)))


def test_a_newcomer_leaves_room_to_those_who_wait(local_grant: Grant, catalogue: Catalogue) -> None:
    """With one device free and one run waiting the next run waits too, and is told behind whom."""
    request = Request(spec(), catalogue.types["v2-8"], NOW + timedelta(hours=3), owner=OURS.digest, airflow=AIRFLOW)
    with pytest.raises(RowInUse, match=f"waited for longer by {reservation(1).run}"):
        authorize(local_grant, request, Inventory(), NOW, queue(1, taken=4))
    assert authorize(local_grant, request, Inventory(), NOW, queue(1, taken=3)).allowance
