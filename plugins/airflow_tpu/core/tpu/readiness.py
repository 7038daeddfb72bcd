# SPDX-License-Identifier: Apache-2.0
"""Decide whether a TPU is ready, from the node, the queued resource and the create operation together.

None of the three is enough alone: a stock-out arrives in the operation about a minute after it was accepted, an
operation may never end although the node is READY, and a queued resource's operation ends long before there is
hardware.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from airflow_tpu.core.tpu.api_errors import classify
from airflow_tpu.core.tpu.outcome import Observation, loss_of
from airflow_tpu.core.tpu.spec import Phase, QueuedView, TPUView
from airflow_tpu.errors import StockOut, TPUError, TPUVanished, TransientError

_A_DAY = dt.timedelta(days=1)

# Google's names, old and new, for a request that waits for capacity.
_IN_THE_QUEUE = frozenset({"ACCEPTED", "WAITING_FOR_RESOURCES"})


@dataclass(frozen=True)
class Sighting:
    """What the API answered in one poll.

    :param node: the node, None when the API does not know it.
    :param queued: the queued resource, None when there is none or the API does not know it.
    :param is_queued: a queued resource was asked for.
    :param operation_done: the create operation has ended.
    :param operation_running: the API knows it, and it has not ended.
    :param operation_error: its error.
    :param at: when, an aware instant.
    """

    node: TPUView | None
    queued: QueuedView | None = None
    is_queued: bool = False
    operation_done: bool = False
    operation_running: bool = False
    operation_error: TPUError | None = None
    at: dt.datetime | None = None


@dataclass(frozen=True)
class Readiness:
    """Meaning of a sighting: ready, an error, or a reason to wait.

    :param unhealthy: nothing says that it comes by itself: a node that is not healthy or shows no address, a state or
        health that this release does not know, a request that is neither on its way nor over. Such a wait has a bound
        (:attr:`airflow_tpu.lifecycle.waits.polling.PollPolicy.unhealthy`): the TPU may be charged.
    :param coming: Google is at work on it: a node that is being created, restarted or reimaged, a request that is
        being registered or provisioned. That has a longer bound; the wait for capacity has only the run's own.
    """

    ready: TPUView | None = None
    error: TPUError | None = None
    waiting_for: str = ""
    unhealthy: bool = False
    coming: bool = False


def readiness_of(seen: Sighting) -> Readiness:
    """Decide whether the TPU is ready, still on its way or lost.

    :param seen: what the API answered.
    """
    if seen.node is not None and seen.node.phase is Phase.USABLE and seen.node.has_addresses:
        return Readiness(ready=seen.node)
    error = _queued_error(seen) or _node_error(seen) or seen.operation_error
    if isinstance(error, TransientError):
        error.refused = True
    if error is not None:
        return Readiness(error=error)
    item = seen.node or seen.queued
    is_pending = item is not None and item.phase is Phase.PENDING
    is_coming = is_pending and item is not None and item.state not in _IN_THE_QUEUE
    return Readiness(waiting_for=_reason(seen), unhealthy=not is_pending, coming=is_coming)


def _queued_error(seen: Sighting) -> TPUError | None:
    queued = seen.queued
    if queued is None:
        return None
    if queued.phase is Phase.FAILED and _has_expired(queued, seen.at):
        return StockOut(f"{queued.name}: no capacity until {queued.valid_until}, when the request expired.")
    if queued.phase is Phase.FAILED:
        text = queued.error_message or "the queued resource failed"
        return classify(queued.error_code or 13, text, "", str(queued.name), queued.error_details, ended=True)
    if queued.phase is Phase.LOST and queued.state != "SUSPENDING":
        # SUSPENDING is on the way to SUSPENDED (preempted) or to FAILED (a stock-out, say): only the end tells.
        return loss_of(Observation(queued.name, None, queued, seen.at))
    if queued.phase is Phase.DELETING:
        return TPUVanished(
            f"queued resource {queued.name} is DELETING before it had a TPU: a person or another program deletes it."
        )
    return None


def _has_expired(queued: QueuedView, at: dt.datetime | None) -> bool:
    """Whether the time of a request is over; the texts with which Google fails it then are not documented."""
    return queued.valid_until is not None and at is not None and queued.valid_until <= at


def _node_error(seen: Sighting) -> TPUError | None:
    node = seen.node
    # How a node that is DELETING ends, its request or its operation tells, as long as there is one to tell.
    told = seen.queued if seen.is_queued else seen.operation_running
    if node is not None and (node.phase is Phase.LOST or (node.phase is Phase.DELETING and not told)):
        return loss_of(Observation(node.name, node, seen.queued, seen.at))
    vanished = node is None and not seen.is_queued and seen.operation_done and seen.operation_error is None
    gone = node is None and seen.is_queued and seen.queued is None and seen.operation_done
    if vanished or gone:
        return TPUVanished(
            "the TPU was created and is unknown to the API now: a person or another program deleted it.", seen.at
        )
    return None


def _reason(seen: Sighting) -> str:
    node, queued = seen.node, seen.queued
    if node is not None and node.phase is Phase.USABLE:
        return f"node to show the addresses of its workers (now {node.state} without them)"
    if node is not None:
        return f"node to become READY (now {_now(node)})"
    if queued is not None and queued.phase is Phase.USABLE:
        return f"node of the queued resource, which is {queued.state}"
    if queued is not None:
        return f"queued resource to become ACTIVE (now {queued.state}{_UNKNOWN[queued.phase is Phase.UNKNOWN]})"
    return "the API to show the node"


_UNKNOWN = {True: ", which this release does not know", False: ""}


def _now(node: TPUView) -> str:
    health = f", {node.health}" if node.phase is Phase.UNHEALTHY or node.state == "READY" else ""
    health += f": {node.health_text}" if health and node.health_text else ""
    return f"{node.state}{health}{_UNKNOWN[node.phase is Phase.UNKNOWN]}"


@dataclass(frozen=True)
class Wait:
    """A long wait, as its log line shows it.

    :param since: when it began.
    :param until: when it gives up.
    """

    since: dt.datetime
    until: dt.datetime

    def line(self, what: str, now: dt.datetime, next_check: float) -> str:
        """One log line: what for, since when, next check, until when.

        :param what: what is waited for, in words.
        :param now: this moment.
        :param next_check: seconds until the next look.
        """
        began = f"{self.since:%H:%M:%S}" if now - self.since < _A_DAY else f"{self.since:%Y-%m-%d %H:%M}"
        return (
            f"waiting for {what}: {spoken(int((now - self.since).total_seconds()))} since {began} UTC, "
            f"next check in {spoken(round(next_check))}, giving up at {self.until:%Y-%m-%d %H:%M} UTC"
        )


def spoken(seconds: int) -> str:
    """A span of time in the two units that matter: ``90 s``, ``25 min``, ``5 h 20 min``, ``3 d 4 h``."""
    if seconds < 120:
        return f"{seconds} s"
    minutes = seconds // 60
    if minutes < 120:
        return f"{minutes} min"
    hours = minutes // 60
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"
