# SPDX-License-Identifier: Apache-2.0
"""Which state may follow which, as data; the states are those of Cloud TPU API v2."""

from __future__ import annotations

from collections.abc import Mapping

from google.cloud.tpu_v2.types import Node, QueuedResourceState

N = Node.State
Q = QueuedResourceState.State

LOST = frozenset({N.PREEMPTED, N.TERMINATED})
"""States in which a node has been taken away: only a delete follows."""

_FROM_READY = {N.RESTARTING, N.REIMAGING, N.REPAIRING, N.STOPPING, N.HIDING, N.UNKNOWN, *LOST}

#: Every node may be deleted from every state, hence DELETING is added to each row below.
NODE: Mapping[int, frozenset[int]] = {
    state: frozenset({N.DELETING, *following})
    for state, following in {
        N.CREATING: {N.READY, *LOST},
        N.READY: _FROM_READY,
        N.RESTARTING: {N.READY, *LOST},
        N.REIMAGING: {N.READY, *LOST},
        N.REPAIRING: {N.READY, N.UNKNOWN, *LOST},
        N.STOPPING: {N.STOPPED},
        N.STOPPED: {N.STARTING},
        N.STARTING: {N.READY, *LOST},
        N.HIDING: {N.HIDDEN},
        N.HIDDEN: {N.UNHIDING},
        N.UNHIDING: {N.READY},
        N.PREEMPTED: set(),
        N.TERMINATED: set(),
        N.UNKNOWN: {N.READY},
        N.DELETING: set(),
    }.items()
}

#: The one way back out of DELETING is a delete operation that fails; it restores the state before.
QUEUED: Mapping[int, frozenset[int]] = {
    Q.CREATING: frozenset({Q.ACCEPTED, Q.WAITING_FOR_RESOURCES, Q.FAILED, Q.DELETING}),
    Q.ACCEPTED: frozenset({Q.WAITING_FOR_RESOURCES, Q.PROVISIONING, Q.FAILED, Q.DELETING}),
    Q.WAITING_FOR_RESOURCES: frozenset({Q.PROVISIONING, Q.FAILED, Q.DELETING}),
    Q.PROVISIONING: frozenset({Q.ACTIVE, Q.SUSPENDING, Q.FAILED, Q.DELETING}),
    Q.ACTIVE: frozenset({Q.SUSPENDING, Q.DELETING}),
    Q.SUSPENDING: frozenset({Q.SUSPENDED, Q.FAILED, Q.DELETING}),
    Q.SUSPENDED: frozenset({Q.DELETING}),
    Q.FAILED: frozenset({Q.DELETING}),
    Q.DELETING: frozenset(),
}

#: Deleting a request without ``force`` is accepted in these states even while it owns nodes.
QUEUED_DELETABLE = frozenset({Q.ACCEPTED, Q.WAITING_FOR_RESOURCES, Q.FAILED, Q.SUSPENDED})


class IllegalTransition(RuntimeError):
    """The local cloud itself went wrong: a state was to follow one that it cannot follow."""


def check(table: Mapping[int, frozenset[int]], name: str, old: int, new: int) -> None:
    """Let a transition of the table pass.

    :raises IllegalTransition: if the table does not hold it.
    """
    if new not in table.get(old, frozenset()):
        raise IllegalTransition(f"{name}: state {new} cannot follow {old}")
