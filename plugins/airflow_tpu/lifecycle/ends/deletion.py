# SPDX-License-Identifier: Apache-2.0
"""Ask for the delete of what the API has of a run; one failure does not stop the rest."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_tpu.core.tpu.labels import token_of
from airflow_tpu.core.tpu.spec import Phase, QueuedView
from airflow_tpu.errors import TPUError, TransientError
from airflow_tpu.lifecycle.ends.end_reasons import endings_of
from airflow_tpu.lifecycle.ends.incarnation_end import IncarnationEnd
from airflow_tpu.lifecycle.project_snapshot import ProjectSnapshot

if TYPE_CHECKING:
    from airflow_tpu.clients.tpu_api import TPUClient
    from airflow_tpu.clients.tpu_messages import OperationView
    from airflow_tpu.core.tpu.labels import RunKey
    from airflow_tpu.core.tpu.resource_name import ResourceName
    from airflow_tpu.lifecycle.ends.end_reasons import Answers

    Delete = Callable[[ResourceName], Awaitable[OperationView | None]]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Release:
    """What came of asking for deletes.

    :param endings: incarnations that were alive or left as terminated nodes, and how they ended.
    :param failures: what could not be deleted or looked at.
    """

    endings: list[IncarnationEnd]
    failures: list[TPUError]

    def check(self) -> None:
        """Say that something may be left.

        :raises TPUError: the first failure; the others are in the log.
        """
        if self.failures:
            raise self.failures[0]

    def check_none(self) -> None:
        """Say that something was still alive, or may be.

        :raises TPUError: the first failure, or that what was found is only being deleted; to be tried again.
        """
        self.check()
        if self.endings:
            names = ", ".join(ending.node_id for ending in self.endings)
            raise TransientError(f"{names} came while its run was being ended, and is being deleted")


async def delete_seen(client: TPUClient, snapshot: ProjectSnapshot, key: RunKey, token: str | None = None) -> Release:
    """Ask for the delete of what a snapshot has seen of a run; one failure does not stop the rest.

    :param client: the Cloud TPU API.
    :param snapshot: what is there.
    :param key: whose.
    :param token: only what carries this attempt's token, None for everything of the run.
    """
    nodes = tuple(node for node in snapshot.ours(key) if token in (None, token_of(node.labels)))
    queued = tuple(item for item in snapshot.queued_ours(key) if token in (None, token_of(item.labels)))
    return await delete_all(client, replace(snapshot, nodes=nodes, queued=queued))


async def delete_all(client: TPUClient, snapshot: ProjectSnapshot) -> Release:
    """Ask for the delete of everything in a snapshot, which the caller has narrowed to what must go.

    :param client: the Cloud TPU API.
    :param snapshot: what is to be deleted, and which zones did not answer.
    """
    done = Release([], _unknown(snapshot))
    operations: Answers = {}
    for item in snapshot.queued:
        if _deletable(item):
            operations[item.queued_id] = await _delete(client.delete_queued_resource, item.name, done)
    for node in snapshot.nodes:
        request = node.queued_resource.id if node.queued_resource else node.node_id
        if operations.get(request) is None and node.phase is not Phase.DELETING:
            operations[node.node_id] = await _delete(client.delete_node, node.name, done)
    done.endings.extend(endings_of(snapshot, operations, client.clock.now()))
    return done


async def _delete(method: Delete, name: ResourceName, done: Release) -> OperationView | TPUError | None:
    try:
        return await method(name)
    except TPUError as error:
        log.error("could not delete %s: %s", name, error)
        done.failures.append(error)
        return error


def _unknown(snapshot: ProjectSnapshot) -> list[TPUError]:
    if not snapshot.unreachable:
        return []
    zones = ", ".join(snapshot.unreachable)
    return [TransientError(f"zones {zones} did not answer: what lives there is unknown")]


def left_of(snapshot: ProjectSnapshot, key: RunKey) -> list[str]:
    """What the API still knows of a run, in words."""
    return [f"{item.name.kind}/{item.name.id} ({item.state})" for item in snapshot.all_ours(key)]


def _deletable(queued: QueuedView) -> bool:
    # Forcing a delete while SUSPENDING is what Google advises against (note in apple/axlearn's TPU utilities).
    return queued.state not in ("DELETING", "SUSPENDING")
