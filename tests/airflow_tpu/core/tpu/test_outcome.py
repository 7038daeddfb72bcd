# SPDX-License-Identifier: Apache-2.0
"""From everything that is known of a TPU and a run to one leaf of the error tree."""

from __future__ import annotations

import datetime as dt
import itertools
from dataclasses import replace

import pytest

from airflow_tpu.core.run.result import RunResult, classify_exit
from airflow_tpu.core.tpu.outcome import UNREACHABLE_LIMIT, Observation, final_error, loss_of, silence_of
from airflow_tpu.core.tpu.resource_name import ResourceName
from airflow_tpu.core.tpu.spec import QueuedView, Tier, TPUView
from airflow_tpu.errors import (
    AcceleratorMissing,
    HostLost,
    RunFailed,
    RunInterrupted,
    RunStopped,
    StorageUnreachable,
    TPUError,
    TPULost,
    TPUMaintenance,
    TPUPreempted,
    TPUStopped,
    TPUVanished,
)

NAME = ResourceName.parse("projects/p/locations/us-central1-f/nodes/train-1")
AT = dt.datetime(2026, 11, 28, 3, 0, tzinfo=dt.UTC)
SICK = "UNHEALTHY_MAINTENANCE"
SOON, LATE = dt.timedelta(seconds=30), UNREACHABLE_LIMIT + dt.timedelta(seconds=1)

Leaf = type[TPUError] | None


def observed(state: str | None, health: str = "", tier: str = "spot", queued: str = "") -> Observation:
    """What the API says; ``queued`` is state and initiator of a queued resource."""
    node = None if state is None else TPUView(NAME, state, health, tier=Tier(tier))
    request_state, _, initiator = queued.partition(" ")
    request = QueuedView(NAME.queued, request_state, initiator=initiator) if queued else None
    return Observation(NAME, node, request, AT)


def test_google_s_own_words_for_ill_health_are_kept() -> None:
    """Why a node is not healthy stands in the error, where the API says it."""
    sick = TPUView(NAME, "READY", SICK, health_text="Chip 3 is offline")
    silent = silence_of(Observation(NAME, sick, None, AT), LATE)
    assert "READY (UNHEALTHY_MAINTENANCE: Chip 3 is offline)" in str(silent)
    gone = loss_of(Observation(NAME, replace(sick, state="TERMINATED"), None, AT))
    assert "is TERMINATED (Chip 3 is offline)" in str(gone)


STATES: list[tuple[Observation, Leaf]] = [
    *((observed(state), None) for state in ("READY", "CREATING", "STARTING", "RESTARTING", "REIMAGING", "REPAIRING")),
    (observed("READY", "HEALTHY"), None),
    (observed("READY", SICK), None),
    (observed("READY", "TIMEOUT"), None),
    (observed("READY", "99"), None),
    (observed("99"), None),
    (observed("READY", queued="SUSPENDING SERVICE"), None),
    *((observed("PREEMPTED", tier=tier), TPUPreempted) for tier in ("spot", "preemptible", "on-demand")),
    (observed("PREEMPTED", SICK), TPUPreempted),
    (observed("TERMINATED"), TPUPreempted),
    (observed("TERMINATED", tier="preemptible"), TPUPreempted),
    (observed("TERMINATED", tier="on-demand"), TPUMaintenance),
    (observed("TERMINATED", SICK), TPUMaintenance),
    *((observed(state), TPUPreempted) for state in ("STOPPING", "STOPPED", "HIDING", "HIDDEN")),
    *((observed(state, tier="on-demand"), TPUStopped) for state in ("STOPPING", "STOPPED")),
    (observed("STOPPED", SICK, "on-demand"), TPUMaintenance),
    (observed("UNKNOWN"), HostLost),
    (observed("UNKNOWN", tier="on-demand"), HostLost),
    (observed("DELETING"), TPUVanished),
    (observed("DELETING", queued="SUSPENDING SERVICE"), TPUPreempted),
    (observed("DELETING", queued="SUSPENDING USER"), TPUVanished),
    (observed("PREEMPTED", queued="SUSPENDED USER"), TPUVanished),
    (observed("TERMINATED", tier="on-demand", queued="SUSPENDED SERVICE"), TPUPreempted),
    (observed(None), TPUVanished),
    (observed(None, queued="ACTIVE"), TPUVanished),
    (observed(None, queued="SUSPENDING SERVICE"), TPUPreempted),
    (observed(None, queued="SUSPENDED SERVICE"), TPUPreempted),
    (observed(None, queued="SUSPENDED"), TPUPreempted),
    (observed(None, queued="SUSPENDED USER"), TPUVanished),
]


def leaf_of(error: TPUError | None) -> Leaf:
    """Class of an error."""
    return None if error is None else type(error)


def described(seen: Observation) -> str:
    """Name of a row."""
    node, queued = seen.node, seen.queued
    words = ["absent"] if node is None else [node.state, node.health, str(node.tier)]
    return "-".join(filter(None, [*words, *([queued.state, queued.initiator] if queued else [])]))


@pytest.mark.parametrize(("seen", "leaf"), STATES, ids=[described(seen) for seen, _ in STATES])
def test_what_the_api_says_of_a_node(seen: Observation, leaf: Leaf) -> None:
    """Node, health and queued resource together name the loss and the instant at which it was seen."""
    lost = loss_of(seen)
    assert leaf_of(lost) is leaf
    assert lost is None or lost.at == AT


@pytest.mark.parametrize(("seen", "leaf"), STATES, ids=[described(seen) for seen, _ in STATES])
def test_a_connection_error_alone_decides_nothing(seen: Observation, leaf: Leaf) -> None:
    """While the worker has not been silent for long, only the API's word counts."""
    assert leaf_of(silence_of(seen, SOON)) is leaf


SILENT: list[tuple[Observation, Leaf]] = [
    (observed("READY"), HostLost),
    (observed("READY", "HEALTHY", "on-demand"), HostLost),
    (observed("READY", "TIMEOUT"), HostLost),
    (observed("99"), HostLost),
    (observed("READY", SICK), TPUMaintenance),
    (observed("REPAIRING"), TPUMaintenance),
    (observed("REPAIRING", SICK), TPUMaintenance),
    (observed("PREEMPTED"), TPUPreempted),
    (observed(None), TPUVanished),
]


@pytest.mark.parametrize(("seen", "leaf"), SILENT, ids=[described(seen) for seen, _ in SILENT])
def test_silence_of_a_machine_that_the_api_calls_ready(seen: Observation, leaf: Leaf) -> None:
    """A worker that has been silent for too long is lost, whatever the API says; maintenance is waited for."""
    assert leaf_of(silence_of(seen, LATE)) is leaf


def test_form_says_how_long_a_silence_may_last() -> None:
    """A host that is silent for longer than a run allows is lost, for another run it may still come back."""
    minutes = [dt.timedelta(minutes=number) for number in (1, 2, 3)]
    assert isinstance(silence_of(observed("READY"), minutes[1], minutes[0]), HostLost)
    assert silence_of(observed("READY"), minutes[1], minutes[2]) is None


def test_silent_host_is_charged_until_it_is_deleted() -> None:
    """A host that is still READY has no end yet: the delete is its end."""
    lost = silence_of(observed("READY"), LATE)
    assert lost is not None
    assert lost.at is None


RESULTS: list[tuple[RunResult, Leaf]] = [
    (RunResult(0), None),
    (RunResult(1), RunFailed),
    (RunResult(None, 11), RunFailed),
    (RunResult(69), AcceleratorMissing),
    (RunResult(74), StorageUnreachable),
    (RunResult(75), RunInterrupted),
    (RunResult(137), RunFailed),
    (RunResult(143), RunInterrupted),
    (RunResult(None, 15), RunInterrupted),
    (RunResult(255), RunFailed),
]
LOSSES: list[TPULost | None] = [None, TPUPreempted("gone", AT), TPUMaintenance("down", AT), TPUVanished("away", AT)]


@pytest.mark.parametrize(("ended", "lost"), [*itertools.product(RESULTS, LOSSES)])
def test_exit_code_and_node_together(ended: tuple[RunResult, Leaf], lost: TPULost | None) -> None:
    """A run that ended badly on a lost TPU is the TPU's loss, with both texts; a success stays one."""
    result, own = ended
    error = final_error(classify_exit(result), lost)
    assert leaf_of(error) is (own if own is None or lost is None else type(lost))
    if error is not None and lost is not None:
        assert isinstance(error, TPULost)
        assert (error.at, str(lost) in str(error), result.how in str(error)) == (AT, True, True)


def test_a_persons_stop_outlives_the_tpu() -> None:
    """A run that a person stopped is not started again because its TPU was taken away right after."""
    error = classify_exit(RunResult(75, stopped=True, stop_command=True, last_durable_step=40))
    assert isinstance(error, RunStopped)
    assert "step 40 is safe" in str(error)
    assert final_error(error, TPUPreempted("gone", AT)) is error
