# SPDX-License-Identifier: Apache-2.0
"""States of nodes and queued resources, and the JSON form of a spec."""

from __future__ import annotations

import json

import pytest

from airflow_tpu.core import json_form
from airflow_tpu.core.tpu.resource_name import node_name
from airflow_tpu.core.tpu.spec import (
    Phase,
    QueuedView,
    Tier,
    TPUSpec,
    TPUView,
    phase_of_node,
    phase_of_queued,
    region_of,
)

NAME = node_name("p", "z", "n")
NODE_STATES = {
    "CREATING": Phase.PENDING,
    "READY": Phase.USABLE,
    "RESTARTING": Phase.PENDING,
    "REIMAGING": Phase.PENDING,
    "DELETING": Phase.DELETING,
    "REPAIRING": Phase.UNHEALTHY,
    "STOPPED": Phase.LOST,
    "STOPPING": Phase.LOST,
    "STARTING": Phase.PENDING,
    "PREEMPTED": Phase.LOST,
    "TERMINATED": Phase.LOST,
    "HIDING": Phase.LOST,
    "HIDDEN": Phase.LOST,
    "UNHIDING": Phase.PENDING,
    "UNKNOWN": Phase.LOST,
    "STATE_UNSPECIFIED": Phase.UNKNOWN,
    "7": Phase.UNKNOWN,
    "": Phase.UNKNOWN,
    "HIBERNATING": Phase.UNKNOWN,
}
QUEUED_STATES = {
    "CREATING": Phase.PENDING,
    "ACCEPTED": Phase.PENDING,
    "WAITING_FOR_RESOURCES": Phase.PENDING,
    "PROVISIONING": Phase.PENDING,
    "ACTIVE": Phase.USABLE,
    "FAILED": Phase.FAILED,
    "DELETING": Phase.DELETING,
    "SUSPENDING": Phase.LOST,
    "SUSPENDED": Phase.LOST,
    "STATE_UNSPECIFIED": Phase.UNKNOWN,
    "10": Phase.UNKNOWN,
}


@pytest.mark.parametrize(("state", "phase"), NODE_STATES.items())
def test_node_states(state: str, phase: Phase) -> None:
    """Each state of the API has one meaning, and an unheard-of one is UNKNOWN."""
    assert phase_of_node(state) is phase
    assert TPUView(NAME, state).phase is phase


@pytest.mark.parametrize(
    ("health", "phase"),
    [
        ("", Phase.USABLE),
        ("HEALTH_UNSPECIFIED", Phase.USABLE),
        ("HEALTHY", Phase.USABLE),
        ("TIMEOUT", Phase.UNHEALTHY),
        ("UNHEALTHY_TENSORFLOW", Phase.UNHEALTHY),
        ("UNHEALTHY_MAINTENANCE", Phase.UNHEALTHY),
        ("2", Phase.UNKNOWN),
    ],
)
def test_health_decides_only_when_ready(health: str, phase: Phase) -> None:
    """A READY node is usable unless its health says no; other states do not look at it."""
    assert phase_of_node("READY", health) is phase
    assert phase_of_node("PREEMPTED", health) is Phase.LOST


@pytest.mark.parametrize(("state", "phase"), QUEUED_STATES.items())
def test_queued_states(state: str, phase: Phase) -> None:
    """A suspended request is lost: it never comes back by itself."""
    assert phase_of_queued(state) is phase
    assert QueuedView(NAME.queued, state).phase is phase


@pytest.mark.parametrize(
    ("tier", "pool"),
    [(Tier.SPOT, Tier.SPOT), (Tier.PREEMPTIBLE, Tier.SPOT), (Tier.ON_DEMAND, Tier.ON_DEMAND)],
)
def test_preemptible_draws_on_the_spot_pool(tier: Tier, pool: Tier) -> None:
    """Spot and preemptible share one quota."""
    assert tier.pool is pool


def test_a_spec_survives_json() -> None:
    """What was specified is what another task reads."""
    spec = TPUSpec(
        "my-project", "us-central1-f", "v2-8", "tpu-vm-tf-2.18.0-pjrt", Tier.SPOT, False, True, "n", "s", "a"
    )
    assert json_form.from_json(TPUSpec, json.loads(json.dumps(json_form.to_json(spec)))) == spec
    assert spec.parent == "projects/my-project/locations/us-central1-f"


@pytest.mark.parametrize(
    ("zone", "region"),
    [("us-central1-f", "us-central1"), ("us-central1-ai1a", "us-central1"), ("asia-east1-c", "asia-east1")],
)
def test_region_of_a_zone(zone: str, region: str) -> None:
    """A region is the zone without its last part."""
    assert region_of(zone) == region
