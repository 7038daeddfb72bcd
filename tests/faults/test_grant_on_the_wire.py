# SPDX-License-Identifier: Apache-2.0
"""Nothing outside the grant ever reaches the create call of the cloud, and everything inside is let through."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.cloud import tpu_v2
from hypothesis import given
from hypothesis import strategies as st

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.core.tpu.spec import Tier, TPUSpec
from airflow_tpu.errors import GrantError
from airflow_tpu.lifecycle.creating.create import Provisioner
from airflow_tpu.lifecycle.order import Order
from localcloud.tpu_api.dispatcher import CallDispatcher
from localcloud.virtual_cloud import VirtualCloud, make_virtual_cloud
from tests.airflow_tpu.identities import AIRFLOW
from tests.airflow_tpu.shipped import GENERATIONS
from tests.faults.virtual_context import BUCKET, VirtualContext
from tests.faults.virtual_processes import Process
from tests.faults.virtual_wire import VirtualBucket, VirtualChannel, VirtualStorage

CATALOGUE = Catalogue.load(Path(__file__).resolve().parents[2] / "include" / "catalogue")
CHIPS = {"v2-8": 4, "v6e-1": 1, "v6e-4": 4, "v6e-8": 8}
HOMES = {"v2": ("europe-west4-a", "us-central1-f"), "v6e": ("europe-west4-a", "us-east1-d")}
"""Zones that offer a generation; europe-west4-a has both, so that their rows are beside one another."""

KEY = RunKey(AIRFLOW, "tpu_train", "the run")
SPOT, ON_DEMAND = "spot", "on-demand"


@dataclass(frozen=True)
class Row:
    """One row of a letter: whole devices of one type, or chips of a generation."""

    count: int
    what: str
    tier: str
    zone: str

    def is_of(self, tpu: Tpu) -> bool:
        """Whether a TPU is of this row, by the words of the letter."""
        same_kind = tpu.kind == self.what or tpu.kind.startswith(f"{self.what}-")
        return same_kind and tpu.zone == self.zone and (tpu.tier == ON_DEMAND) == (self.tier == ON_DEMAND)

    def units(self, tpu: Tpu) -> int:
        """What a TPU takes of it."""
        return 1 if self.what in CHIPS else CHIPS[tpu.kind]

    def to_json(self) -> dict[str, Any]:
        """The row as the grant file has it."""
        kind = (
            {"unit": "devices", "type": self.what} if self.what in CHIPS else {"unit": "chips", "generation": self.what}
        )
        return {"count": self.count, "tier": self.tier, "zone": self.zone, **kind}


@dataclass(frozen=True)
class Tpu:
    """A TPU that exists, or is wanted."""

    kind: str
    tier: str
    zone: str
    lost: bool = False


def _home(what: str) -> st.SearchStrategy[str]:
    return st.sampled_from(HOMES[what.partition("-")[0]])


pools = st.sampled_from([SPOT, ON_DEMAND])
row = st.sampled_from(["v2-8", "v6e"]).flatmap(
    lambda what: st.builds(Row, st.integers(1, 12), st.just(what), pools, _home(what))
)
rows = st.lists(row, min_size=1, max_size=4, unique_by=lambda one: (one.what, one.tier, one.zone))
tiers = st.sampled_from([SPOT, "preemptible", ON_DEMAND])
tpus = st.sampled_from(sorted(CHIPS)).flatmap(
    lambda kind: st.builds(Tpu, st.just(kind), tiers, _home(kind), st.booleans())
)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Row], list[Tpu], Tpu]:
    """A grant, what is in the project, and a wish, most of them near to some row of the grant."""
    letter = draw(rows)
    near = st.sampled_from(letter).flatmap(_of_row)
    return letter, draw(st.lists(st.one_of(near, tpus), max_size=5)), draw(st.one_of(near, near, tpus))


def _of_row(row: Row) -> st.SearchStrategy[Tpu]:
    kinds = [kind for kind in sorted(CHIPS) if kind == row.what or kind.startswith(f"{row.what}-")]
    pool = [ON_DEMAND] if row.tier == ON_DEMAND else [SPOT, "preemptible"]
    return st.builds(Tpu, st.sampled_from(kinds), st.sampled_from(pool), st.just(row.zone), st.booleans())


def settle(cloud: VirtualCloud, inventory: list[Tpu]) -> None:
    """Create these TPUs for another user; a lost one is counted until it is deleted."""
    for number, tpu in enumerate(inventory):
        scheduling = {} if tpu.tier == ON_DEMAND else {"spot": tpu.tier == SPOT, "preemptible": tpu.tier != SPOT}
        runtime = CATALOGUE.types[tpu.kind].default_runtime
        node = {"accelerator_type": tpu.kind, "runtime_version": runtime, "scheduling_config": scheduling}
        parent = f"projects/local-project/locations/{tpu.zone}"
        cloud.call("Tpu/CreateNode", tpu_v2.CreateNodeRequest(parent=parent, node_id=f"n-{number}", node=node))
    cloud.pass_time(10.0)
    for number, tpu in enumerate(inventory):
        if tpu.lost and tpu.tier != ON_DEMAND:
            cloud.state.shutdown.preempt(cloud.state.node(f"n-{number}"))


def ask(cloud: VirtualCloud, letter: list[Row], wish: Tpu, queued: bool, hours: int) -> tuple[list[str], str]:
    """Send a run through the product; return the create calls that reached the cloud, and the refusal."""
    asked: list[str] = []
    process = Process("ensure", cloud.clock)

    def arrives(method: str, _: Any) -> None:
        if method.startswith("Create"):
            asked.append(method)

    channel = VirtualChannel(process, CallDispatcher(cloud.service, cloud.meter.calls), arrives)
    virtual = VirtualContext(process, channel, VirtualStorage(process, VirtualBucket()), grant_of(letter))
    kind = CATALOGUE.types[wish.kind]
    spec = TPUSpec("local-project", wish.zone, wish.kind, kind.default_runtime, Tier(wish.tier), queued=queued)
    order = Order(spec, kind, grant_of(letter), {}, "", "trainer:ssh-ed25519 AAAA")

    def ensured() -> None:
        stores = virtual.grant.stores
        record = stores.runs.acquire(KEY, wish.zone, process.clock.now() + dt.timedelta(hours=hours))
        virtual.tpu.run(lambda client: Provisioner(client, stores, order, record).ensure())

    process.start(ensured)
    while not process.ended:
        process.go()
    if process.error is not None and not isinstance(process.error, GrantError):
        raise process.error
    return asked, str(process.error or "")


def grant_of(letter: list[Row]) -> Grant:
    """A grant of thirty days with these rows."""
    head = {
        "project_id": "local-project",
        "project_number": "100000000001",
        "start": "2026-01-01",
        "timezone": "UTC",
        "days": 30,
    }
    return Grant.parse({**head, "allowances": [row.to_json() for row in letter], "bucket": BUCKET}, GENERATIONS)


@given(cases(), st.booleans(), st.sampled_from([1, 24, 24, 24, 24 * 40]))
def test_exactly_what_the_grant_covers_is_asked_for(
    case: tuple[list[Row], list[Tpu], Tpu], queued: bool, hours: int
) -> None:
    """One create call if some row has room for the wish and the run ends within the term, none otherwise."""
    letter, inventory, wish = case
    cloud = make_virtual_cloud()
    settle(cloud, inventory)
    asked, refusal = ask(cloud, letter, wish, queued, hours)
    fits = [
        row
        for row in letter
        if row.is_of(wish) and row.units(wish) + sum(row.units(tpu) for tpu in inventory if row.is_of(tpu)) <= row.count
    ]
    is_covered = bool(fits) and hours <= 24
    assert len(asked) == is_covered, (refusal, asked)
