# SPDX-License-Identifier: Apache-2.0
"""Events of a ledger made by hand, shared by the tests of everything that is folded from it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from airflow_tpu.core.ledger.events import Closed, EndReason, Opened, Transfer
from airflow_tpu.core.tpu.spec import Tier

ASKED = datetime(2026, 11, 27, 12, tzinfo=UTC)
NOW = ASKED + timedelta(days=1)
ROW = "5 on-demand v2-8 devices in us-central1-f"
NODE = "tpu-train-0123456789-1"


def opened(node_id: str = NODE, **changes: Any) -> Opened:
    """A covered on-demand v2-8 with one external address."""
    event = Opened(
        node_id=node_id,
        run="0123456789",
        dag_id="tpu_train",
        run_id="manual__1",
        project="local-project",
        zone="us-central1-f",
        accelerator_type="v2-8",
        chips=4,
        tier=Tier.ON_DEMAND,
        provisioning="node",
        external_ips=1,
        allowance=ROW,
        paid_reason="",
        requested_at=ASKED,
    )
    return replace(event, **changes)


def closed(node_id: str = NODE, minutes: float = 90, reason: EndReason = EndReason.FINISHED, **more: Any) -> Closed:
    """Its end, so many minutes after READY, which was five minutes after the request."""
    ready = more.pop("ready_at", ASKED + timedelta(minutes=5))
    return Closed(node_id, ready, ready + timedelta(minutes=minutes), reason, **more)


# Two types with a price, one zone without, one type that the catalogue does not know.
PLACES = (("v2-8", "us-central1-f"), ("v5litepod-8", "europe-west4-b"), ("v3-8", "us-east1-d"), ("v9-8", "nowhere1-a"))


transfers = st.builds(
    Transfer,
    st.sampled_from(["gs://far-away/data", "gs://far-away/runs"]),
    st.sampled_from(["EUROPE-WEST4", "US", "ME-WEST1", ""]),
    st.booleans(),
    st.none() | st.integers(0, 10**15),
)


@st.composite
def incarnations(draw: st.DrawFn, number: int) -> list[Opened | Closed]:
    """The events of one incarnation, anything that the ledger may hold."""
    kind, zone = draw(st.sampled_from(PLACES))
    asked = ASKED - timedelta(seconds=draw(st.integers(0, 10**7)))
    event = opened(
        f"node-{number}",
        run_id=draw(st.sampled_from(["manual__1", "sched|uled__2", "수동__3"])),
        dag_id=draw(st.sampled_from(["tpu_train", "nightly", "a_b*c"])),
        accelerator_type=kind,
        zone=zone,
        chips=draw(st.sampled_from([1, 4, 32])),
        tier=draw(st.sampled_from(list(Tier))),
        external_ips=draw(st.integers(0, 4)),
        allowance=draw(st.sampled_from([None, ROW])),
        paid_reason=draw(st.sampled_from(["", "deadline", "the bucket is in the EU"])),
        requested_at=asked,
        transfers=draw(st.none() | st.lists(transfers, max_size=2).map(tuple)),
    )
    if draw(st.booleans()):
        return [event]
    if draw(st.booleans()):
        return [event, Closed(event.node_id, None, None, EndReason.NEVER_READY)]
    return [event, _end(draw, event)]


def _end(draw: st.DrawFn, event: Opened) -> Closed:
    ready = event.requested_at + timedelta(microseconds=draw(st.integers(0, 10**10)))
    reasons = [reason for reason in EndReason if reason is not EndReason.NEVER_READY]
    return Closed(
        event.node_id,
        ready,
        ready + timedelta(microseconds=draw(st.integers(1, 10**12))),
        draw(st.sampled_from(reasons)),
        training_seconds=draw(st.floats(0, 10**6)),
        artifact_bytes=draw(st.integers(0, 10**13)),
        lost_seconds=draw(st.none() | st.floats(0, 10**6)),
    )


@st.composite
def ledgers(draw: st.DrawFn, most: int = 6) -> list[Opened | Closed]:
    """Whole ledgers."""
    return [event for number in range(draw(st.integers(0, most))) for event in draw(incarnations(number))]
