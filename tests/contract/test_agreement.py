# SPDX-License-Identifier: Apache-2.0
"""Create, usage page and daily grant check say the same of every TPU."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from airflow_tpu.core.grant.authorize import authorize
from airflow_tpu.core.grant.create_request import Request
from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.core.grant.inventory import Inventory
from airflow_tpu.core.report.notices import uncovered
from airflow_tpu.core.tpu.spec import Tier, TPUSpec, TPUView
from airflow_tpu.errors import GrantViolation
from airflow_tpu.ui.costs import cost_of
from airflow_tpu.ui.living_tpus import gauges, living
from tests.airflow_tpu.ui.made import CATALOGUE, NOW, grant, node, snapshot

ZONE = "europe-west4-b"
KINDS = ["v5litepod-1", "v5litepod-4", "v5litepod-8"]


@dataclass(frozen=True)
class Step:
    """Ask for a TPU, or let the one of that number be lost or deleted."""

    verb: str
    kind: str
    number: int


row = st.fixed_dictionaries({"count": st.integers(1, 16), "tier": st.just("spot"), "zone": st.just(ZONE)}).flatmap(
    lambda usual: st.sampled_from(
        [
            {**usual, "unit": "chips", "generation": "v5e"},
            *({**usual, "unit": "devices", "type": kind} for kind in KINDS),
            {**usual, "unit": "chips", "type": KINDS[-1]},
        ]
    )
)
rows = st.lists(row, min_size=1, max_size=4, unique_by=lambda one: (one["unit"], one.get("type")))
verbs = st.sampled_from(["create", "create", "create", "lose", "delete"])
steps = st.lists(st.builds(Step, verbs, st.sampled_from(KINDS), st.integers(0, 5)), max_size=14)


def permitted(by: Grant, nodes: list[TPUView], kind: str) -> bool:
    """Whether a create would go through as covered, for a run of its own."""
    accelerator = CATALOGUE.types[kind]
    spec = TPUSpec(by.project_id, ZONE, kind, accelerator.default_runtime, Tier.SPOT)
    request = Request(spec, accelerator, NOW + dt.timedelta(hours=1), owner=f"run-{len(nodes)}")
    try:
        return authorize(by, request, Inventory.of(nodes, []), NOW).allowance is not None
    except GrantViolation:
        return False


def after(by: Grant, nodes: list[TPUView], step: Step, name: str) -> list[TPUView]:
    """The project after one step."""
    if step.verb == "create":
        new = node(name, accelerator_type=step.kind, zone=ZONE)
        return [*nodes, new] if permitted(by, nodes, step.kind) else nodes
    chosen = nodes[step.number % len(nodes)] if nodes else None
    rest = [one for one in nodes if one is not chosen]
    return [*rest, replace(chosen, state="PREEMPTED")] if chosen and step.verb == "lose" else rest


@given(rows, steps)
def test_what_was_created_as_covered_is_covered_for_every_reader(
    letter: list[dict[str, Any]], story: list[Step]
) -> None:
    """Through any story of creates, losses and deletions page and check call covered all that was permitted."""
    by = grant(allowances=letter)
    nodes: list[TPUView] = []
    for number, step in enumerate(story):
        nodes = after(by, nodes, step, f"n{number:02}")
        known = snapshot(nodes, grant=by)
        assert {cost_of(known, item)["text"] for _, item in living(known)} <= {"covered", "dead"}
        assert uncovered(by, Inventory.of(nodes, []), NOW) == []
        assert all(gauge["over"] == 0 for gauge in gauges(known) or ())


@given(rows, st.lists(st.sampled_from(KINDS), max_size=8), st.sampled_from(KINDS))
def test_a_refused_create_would_be_shown_as_over(letter: list[dict[str, Any]], kinds: list[str], wanted: str) -> None:
    """A TPU that a create refuses, made in the console all the same, is billed for page and check as well."""
    by = grant(allowances=letter)
    nodes = [node(f"n{number}", accelerator_type=kind, zone=ZONE) for number, kind in enumerate(kinds)]
    made = [*nodes, node("wanted", accelerator_type=wanted, zone=ZONE)]
    known = snapshot(made, grant=by)
    shown = {item.id: cost_of(known, item)["text"] for _, item in living(known)}
    all_covered = set(shown.values()) == {"covered"}
    assert all_covered == (uncovered(by, Inventory.of(made, []), NOW) == [])
    if uncovered(by, Inventory.of(nodes, []), NOW) == []:
        assert permitted(by, nodes, wanted) == all_covered
