# SPDX-License-Identifier: Apache-2.0
"""Wait until nothing of a run is left in the project."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from airflow_tpu.clients.tpu_list_cache import Fresh
from airflow_tpu.core.tpu.spec import Phase
from airflow_tpu.errors import RateLimited, TransientError
from airflow_tpu.lifecycle.ends.deletion import Release, delete_seen, left_of
from airflow_tpu.lifecycle.ends.incarnation_end import settled
from airflow_tpu.lifecycle.project_snapshot import look_again, shared_snapshot
from airflow_tpu.lifecycle.waits.polling import YOUNG, PollLoop, PollPolicy

if TYPE_CHECKING:
    from airflow_tpu.clients.tpu_api import TPUClient
    from airflow_tpu.core.tpu.labels import RunKey
    from airflow_tpu.core.tpu.resource_name import ResourceName
    from airflow_tpu.lifecycle.project_snapshot import ProjectSnapshot


async def until_gone(
    client: TPUClient,
    key: RunKey,
    policy: PollPolicy,
    asked: Release | None = None,
    names: Iterable[ResourceName] = (),
    zones: Collection[str] | None = None,
) -> None:
    """Wait until the API no longer knows any node or queued resource of a run, in any zone that it ever named.

    What can be deleted only now is deleted on the way: a request that was SUSPENDING, a delete that failed.

    :param asked: what had been asked for before; how what is deleted on the way ended is entered there, so that it is
        known although the wait is cancelled.
    :param names: what may be there although no list shows it yet.
    :param zones: every zone that the run has named; None where that is not known: then all of them have to answer.
    :raises DeadlineExceeded: something is still there; the message names it.
    """
    loop = PollLoop(policy, client.clock)
    began = Fresh.from_now(policy.poll)
    while True:
        try:
            fresh = Fresh(loop.next_pause * YOUNG, began.after)
            listed = (await shared_snapshot(client, fresh)).for_zones(zones)
            snapshot = await look_again(client, listed, _unconfirmed(listed, key, names))
        except (TransientError, RateLimited) as error:
            await loop.pause(f"the API to answer ({error})")
            continue
        # Both have to agree: the next request to the grant goes by the lists.
        left = list(dict.fromkeys([*left_of(listed, key), *left_of(snapshot, key)]))
        left += [f"unreachable zone {zone}" for zone in snapshot.unreachable]
        if not left:
            return
        again = await delete_seen(client, snapshot, key)
        if asked is not None:
            asked.endings[:] = settled(asked.endings, again.endings)
        await loop.pause(f"{', '.join(left)} to be gone")


def _unconfirmed(listed: ProjectSnapshot, key: RunKey, names: Iterable[ResourceName]) -> set[ResourceName]:
    """Resources to read by name before deleting them: lists may be stale.

    The names that no list may show matter once the lists show nothing else; until then the wait continues anyway.
    """
    ours = listed.all_ours(key)
    return {item.name for item in ours if item.phase is not Phase.DELETING} if ours else set(names)
