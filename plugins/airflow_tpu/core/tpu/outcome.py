# SPDX-License-Identifier: Apache-2.0
"""Classify the loss of a TPU: one leaf of the error tree from everything that is known.

Neither signal is enough alone. An SSH error says nothing of the node, and the API calls a node READY for up to a
minute after its machine is gone; a preempted node is not always called PREEMPTED
(https://github.com/skypilot-org/skypilot/issues/1468).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from airflow_tpu.core.tpu.resource_name import ResourceName
from airflow_tpu.core.tpu.spec import Phase, QueuedView, Tier, TPUView
from airflow_tpu.errors import (
    HostLost,
    RemoteError,
    RunStopped,
    TPUError,
    TPULost,
    TPUMaintenance,
    TPUPreempted,
    TPUStopped,
    TPUVanished,
)

UNREACHABLE_LIMIT = dt.timedelta(minutes=5)
"""How long a READY node may be unreachable before the run counts as lost, where the form says nothing else."""

_MAINTENANCE = "UNHEALTHY_MAINTENANCE"


@dataclass(frozen=True)
class Observation:
    """What the API says of a node at one moment.

    :param name: of the node.
    :param node: the node, None when the API does not know it.
    :param queued: its queued resource, None when there is none.
    :param at: the moment, an aware instant; None if unknown.
    """

    name: ResourceName
    node: TPUView | None
    queued: QueuedView | None
    at: dt.datetime | None = None


def loss_of(seen: Observation) -> TPULost | None:
    """Classify the loss of a TPU that is gone or being deleted; None while it lives or its state is unknown.

    :param seen: what the API says.
    """
    if seen.node is None:
        return _unknown_to_the_api(seen)
    if seen.node.phase not in (Phase.LOST, Phase.DELETING):
        return None
    kind, why = _by_request(seen) or _by_state(seen.node)
    told = f" ({seen.node.health_text})" if seen.node.health_text else ""
    return kind(f"node {seen.name} is {seen.node.state}{told}{_of(seen.queued)}: {why}.", seen.at)


def silence_of(seen: Observation, silent_for: dt.timedelta, limit: dt.timedelta = UNREACHABLE_LIMIT) -> TPULost | None:
    """Classify the silence of a worker: by what the API says, then by how long it lasts.

    :param seen: what the API says.
    :param silent_for: how long the worker has not answered.
    :param limit: how long it may not.
    :return: None while it may still come back.
    """
    lost = loss_of(seen)
    if lost is not None or silent_for <= limit or seen.node is None:
        return lost
    minutes = silent_for.total_seconds() / 60
    if seen.node.state == "REPAIRING" or seen.node.health == _MAINTENANCE:
        return TPUMaintenance(
            f"node {seen.name} is {_state(seen.node)} and has been silent for {minutes:.0f} min. It keeps its place: "
            "the next try waits until it is back."
        )
    return HostLost(
        f"node {seen.name} is {_state(seen.node)}, and nothing has answered there for {minutes:.0f} min: the machine "
        "is lost, or the network to it is. It is replaced."
    )


def final_error(error: TPUError | None, lost: TPULost | None) -> TPUError | None:
    """Choose the error of a run: what fails on a TPU that is being taken away counts as the loss of the TPU.

    A framework whose chips disappear ends with any exit code it likes. A bug that meets a preemption by chance costs
    one more attempt, which shows it again. Only a run that was stopped on purpose gets no other attempt.

    :param error: what the run's result stands for, None for success.
    :param lost: how the TPU was lost, None while it lives.
    """
    if error is None or lost is None or not isinstance(error, RemoteError) or isinstance(error, RunStopped):
        return error
    return type(lost)(f"{lost} The run on it: {error}", lost.at)


def _unknown_to_the_api(seen: Observation) -> TPULost:
    kind, why = _by_request(seen) or (TPUVanished, "it was preempted, or a person or another program deleted it")
    return kind(f"node {seen.name} is unknown to the API{_of(seen.queued)}: {why}.", seen.at)


def _by_request(seen: Observation) -> tuple[type[TPULost], str] | None:
    """A preempted queued resource deletes its node by itself, and says whose act that was."""
    queued = seen.queued
    if queued is None or queued.phase is not Phase.LOST:
        return None
    if queued.initiator == "USER":
        return TPUVanished, "a person or another program deleted it"
    return TPUPreempted, "Google took the TPU back"


def _by_state(node: TPUView) -> tuple[type[TPULost], str]:
    if node.state == "PREEMPTED":
        return TPUPreempted, "Google took the TPU back"
    if node.health == _MAINTENANCE:
        return TPUMaintenance, "maintenance ended it"
    if node.state == "UNKNOWN":
        return HostLost, "its repair has failed"
    if node.phase is Phase.DELETING:
        return TPUVanished, "a person or another program is deleting it"
    if node.tier.pool is Tier.SPOT:
        return TPUPreempted, "Google took the TPU back, or its time was up"
    if node.state in ("STOPPING", "STOPPED"):
        return TPUStopped, "a person or another program stopped it. To continue, clear the run: it resumes on a new TPU"
    return TPUMaintenance, "maintenance ended it"


def _state(node: TPUView) -> str:
    told = ": ".join(text for text in (node.health, node.health_text) if text)
    return f"{node.state} ({told})" if told else node.state


def _of(queued: QueuedView | None) -> str:
    return f", its queued resource {queued.state}" if queued is not None and queued.phase is Phase.LOST else ""
