# SPDX-License-Identifier: Apache-2.0
"""What exists in the project, each TPU counted once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from airflow_tpu.core.grant.allowance import Allowance
from airflow_tpu.core.grant.assignment import assign
from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.core.grant.inventory import Inventory
from airflow_tpu.core.tpu.labels import LeaseStamp, RunKey, labels
from airflow_tpu.core.tpu.resource_name import node_name
from airflow_tpu.core.tpu.spec import QueuedView, Tier, TPUView
from tests.airflow_tpu.identities import AIRFLOW
from tests.airflow_tpu.shipped import GENERATIONS

ZONE = "europe-west4-b"
ROW = Allowance(64, "chips", Tier.SPOT, ZONE, "v5e")


def node(node_id: str, state: str = "READY", queued: str = "", zone: str = ZONE) -> TPUView:
    """A spot v5litepod-8."""
    made_by = node_name("p", zone, queued).queued if queued else None
    return TPUView(node_name("p", zone, node_id), state, "", "v5litepod-8", Tier.SPOT, queued_resource=made_by)


def queued(queued_id: str, state: str, *node_ids: str) -> QueuedView:
    """A queued resource for spot v5litepod-8."""
    name = node_name("p", ZONE, queued_id).queued
    return QueuedView(name, state, node_ids=node_ids, accelerator_type="v5litepod-8", tier=Tier.PREEMPTIBLE)


def held(inventory: Inventory) -> int:
    """Chips that are not free in the row."""
    grant = Grant("p", "1", datetime(2026, 11, 1, tzinfo=UTC), 30, "UTC", (ROW,), "b", generations=GENERATIONS)
    return assign(grant, inventory.items).uses[0].held


def test_a_queued_resource_and_its_node_are_one() -> None:
    """A request that has become a node is counted as that node, by its link or by the node's id."""
    by_link = Inventory.of([node("b", queued="a")], [queued("a", "ACTIVE")])
    by_id = Inventory.of([node("b")], [queued("a", "ACTIVE", "b")])
    assert held(by_link) == held(by_id) == 8


def test_a_node_of_the_same_name_elsewhere_is_another() -> None:
    """Node ids are unique within a zone only."""
    inventory = Inventory.of([node("b", zone="us-central1-a")], [queued("a", "ACTIVE", "b")])
    assert held(inventory) == 8
    assert len(inventory.items) == 2


def test_dead_ones_hold_their_chips() -> None:
    """Failed and suspended requests and preempted nodes count until they are deleted, and say so."""
    inventory = Inventory.of([node("n", "PREEMPTED")], [queued("f", "FAILED", "x"), queued("s", "SUSPENDED")])
    assert held(inventory) == 24
    assert [item.alive for item in inventory.items] == [False, False, False]
    assert "delete it" in str(inventory.items[0])


def test_a_waiting_request_counts_each_of_its_nodes() -> None:
    """A request for two nodes of which one is there holds the chips of two."""
    inventory = Inventory.of([node("x")], [queued("q", "PROVISIONING", "x", "y")])
    assert held(inventory) == 16


def test_multislice_counts_the_nodes_that_are_not_there_yet() -> None:
    """A node that is there, by its link or by its id, stands for one of the nodes that its request asks for."""
    asked = queued("q", "PROVISIONING", "q-0", "q-1", "q-2")
    for there in (node("q-1"), node("q-1", queued="q"), node("of-another-name", queued="q")):
        inventory = Inventory.of([there], [asked])
        assert held(inventory) == 24
        assert len({item.id for item in inventory.items}) == 3
    assert held(Inventory.of([node(f"q-{number}", queued="q") for number in range(3)], [asked])) == 24


def test_our_own_are_not_held_by_others() -> None:
    """What the run itself holds is adopted or swept, so it does not stand in its way."""
    key = RunKey(AIRFLOW, "dag", "run")
    mine = TPUView(
        node_name("p", ZONE, "n"),
        "READY",
        accelerator_type="v5litepod-8",
        tier=Tier.SPOT,
        labels=labels(key, LeaseStamp("t", datetime(2026, 1, 1, tzinfo=UTC), 1)),
    )
    inventory = Inventory.of([mine], [])
    assert held(inventory.of_others(key.digest)) == 0
    assert held(inventory.of_others("somebody")) == 8


def test_older_ones_by_the_instant_of_the_request_then_by_name() -> None:
    """A node is as old as the request that made it; one of unknown age is the youngest; a tie goes by the name."""
    key, noon = RunKey(AIRFLOW, "dag", "run"), datetime(2026, 1, 1, 12, tzinfo=UTC)
    marks = labels(key, LeaseStamp("t", noon, 1))
    mine = replace(node("m", queued="m"), labels=marks, created_at=noon + timedelta(hours=1))
    asked = replace(queued("m", "ACTIVE", "m"), created_at=noon)
    ages = {"b": timedelta(hours=-1), "a": timedelta(0), "z": timedelta(0), "c": timedelta(minutes=1)}
    others = [replace(node(name), created_at=noon + age) for name, age in ages.items()]
    found = Inventory.of([mine, node("unknown"), *others], [asked])
    assert [item.id for item in found.older_than(key.digest).items] == ["b", "a"]
    assert found.older_than("not here").items == ()


def test_unreachable_zones_by_name_or_by_resource() -> None:
    """The API answers with resource names, people with zones."""
    inventory = Inventory.of([], [], ["projects/p/locations/us-central1-a", "us-east1-d"])
    assert inventory.is_unreachable("us-central1-a")
    assert inventory.is_unreachable("us-east1-d")
    assert not inventory.is_unreachable(ZONE)
