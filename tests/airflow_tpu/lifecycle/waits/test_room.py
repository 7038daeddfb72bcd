# SPDX-License-Identifier: Apache-2.0
"""A wait for room whose turn does not come, because the run before it does not use its own."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest

from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.core.grant.alternatives import Alternative
from airflow_tpu.core.grant.reservations import RESERVATIONS_FORM, Reservation, Reservations
from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.core.tpu.spec import Tier
from airflow_tpu.lifecycle.waits.polling import PollPolicy
from airflow_tpu.lifecycle.waits.room import RoomSource, Wanted, until_room
from airflow_tpu.stores.grants import load_catalogue
from localcloud.testing import TIMEOUT
from tests.airflow_tpu.cloud_env import ZONE, CloudEnv, now
from tests.airflow_tpu.identities import AIRFLOW

ROW = 5
"""On-demand v2-8 devices of the grant of the local cloud."""

DEVICE = Alternative(ZONE, "v2-8", "tpu-ubuntu2204-base", Tier.ON_DEMAND)
OLDER, OURS = (RunKey(AIRFLOW, "tpu_train", name) for name in ("older", "ours"))


def reservation(env: CloudEnv, key: RunKey) -> Reservation:
    """One device for an hour."""
    return Reservation.of(key, env.order(tier=Tier.ON_DEMAND).spec, 4, now() + dt.timedelta(hours=1))


def fill(env: CloudEnv, taken: int) -> None:
    """So many devices are taken; both runs wait for one, the older one first."""

    def full(current: Reservations | None) -> Reservations:
        held = [reservation(env, RunKey(AIRFLOW, "tpu_train", f"run {number}")) for number in range(taken)]
        return Reservations(tuple(held), (reservation(env, OLDER), reservation(env, OURS)))

    env.reservations.change(env.reservations.uri, RESERVATIONS_FORM, full)


async def wait(
    env: CloudEnv, client: TPUClient, turn: float, seconds: float = TIMEOUT, room: Alternative = DEVICE
) -> None:
    """Wait as our run does."""
    source = RoomSource(env.grant, load_catalogue(), env.reservations, dt.timedelta(seconds=turn))
    until = now() + dt.timedelta(seconds=seconds)
    await until_room(client, source, Wanted(OURS, (room,), until), PollPolicy(0.05, until))


async def test_room_that_the_older_wait_leaves_unused(
    env: CloudEnv, client: TPUClient, caplog: pytest.LogCaptureFixture
) -> None:
    """A free device that the run before does not take, since its DAG is paused say, goes to the next after a while."""
    fill(env, ROW - 1)
    await wait(env, client, turn=0.2)
    assert [entry.owner for entry in env.reservations.read().waiting] == [OURS.digest, OLDER.digest]
    assert "do not take the room that they wait for" in caplog.text


async def test_full_row_is_nobodys_fault(env: CloudEnv, client: TPUClient, caplog: pytest.LogCaptureFixture) -> None:
    """While the row is full both keep their places, however long it takes; the log names who has it and who waits."""
    fill(env, ROW)
    await wait(env, client, turn=0.0, seconds=1.0)
    assert [entry.owner for entry in env.reservations.read().waiting] == [OLDER.digest, OURS.digest]
    assert f"waited for longer by {OLDER.name}" in caplog.text


async def test_large_wait_is_not_overtaken_by_a_small_one(env: CloudEnv, client: TPUClient) -> None:
    """Chips that are too few for the run before stay for it: else small runs would starve it."""
    zone, kinds = "us-central2-b", {OLDER: ("v4-64", 32), OURS: ("v4-8", 4)}
    large, small = (
        Reservation(key.digest, AIRFLOW, key.name, kind, Tier.SPOT, zone, chips, now() + dt.timedelta(hours=1))
        for key, (kind, chips) in kinds.items()
    )
    held = replace(small, owner="held", run="held")
    env.reservations.change(env.reservations.uri, RESERVATIONS_FORM, lambda _: Reservations((held,), (large, small)))
    room = Alternative(zone, "v4-8", "tpu-ubuntu2204-base", Tier.SPOT)
    await wait(env, client, turn=0.0, seconds=1.0, room=room)
    assert env.reservations.read().waiting == (large, small)
