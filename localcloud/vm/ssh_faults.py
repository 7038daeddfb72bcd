# SPDX-License-Identifier: Apache-2.0
"""Faults of SSH to one worker, scripted at ``vm.ssh``.

Params, in seconds of the cloud's clock after READY:

- ``refuse_seconds``: connections are refused for so long.
- ``key_late_seconds``: the keys of the metadata arrive so late; until then every login is denied.
- ``rotate_host_key``: ``true``, before READY, or seconds: the VM has another host key than the API tells.
- ``cut_after``: established connections are cut, the processes live on.
- ``freeze_after``, ``thaw_after`` (seconds after the freeze): connections stay open and silent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from localcloud.clock import Clock
from localcloud.vm.worker.interface import SSHKey, Worker, WorkerGone

Params = Mapping[str, Any]


def keys_at_start(scripts: Sequence[Params], keys: tuple[SSHKey, ...]) -> tuple[SSHKey, ...]:
    """Return the keys a worker starts with: none if they are to come late."""
    return () if any("key_late_seconds" in params for params in scripts) else keys


async def before_ready(scripts: Sequence[Params], worker: Worker) -> None:
    """Apply what must hold before the node of a started worker is READY."""
    for params in scripts:
        if params.get("rotate_host_key") is True:
            await worker.rotate_host_key()
        if "refuse_seconds" in params:
            await worker.refuse()


async def after_ready(params: Params, worker: Worker, keys: tuple[SSHKey, ...], clock: Clock) -> None:
    """Play one script on a worker; ends with the script or with the worker."""

    async def late_keys() -> None:
        await worker.set_keys(keys)

    async def freeze() -> None:
        await worker.freeze()
        if "thaw_after" in params:
            await clock.sleep(float(params["thaw_after"]))
            await worker.thaw()

    actions: dict[str, Callable[[], Awaitable[None]]] = {
        "refuse_seconds": worker.accept,
        "key_late_seconds": late_keys,
        "rotate_host_key": worker.rotate_host_key,
        "cut_after": worker.drop,
        "freeze_after": freeze,
    }
    due = {key: act for key, act in actions.items() if key in params and not isinstance(params[key], bool)}
    await asyncio.gather(*(_later(float(params[key]), act, clock) for key, act in due.items()))


async def _later(seconds: float, action: Callable[[], Awaitable[None]], clock: Clock) -> None:
    await clock.sleep(seconds)
    await ignoring_dead_workers(action())


async def ignoring_dead_workers(work: Awaitable[None]) -> None:
    """Wait for an action on a worker; ignore that the worker was killed meanwhile."""
    try:
        await work
    except WorkerGone:
        return
