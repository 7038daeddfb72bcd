# SPDX-License-Identifier: Apache-2.0
"""Wait until a TPU is ready, or until it is gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_tpu.core import json_form
from airflow_tpu.core.tpu.resource_name import ResourceName
from airflow_tpu.lifecycle.waits.polling import PollPolicy, UnhealthySince
from airflow_tpu.lifecycle.waits.target import Target
from airflow_tpu.triggers.base import CloudTPUBaseTrigger


class CloudTPUReadyTrigger(CloudTPUBaseTrigger):
    """Wait until a TPU is READY and a command has run on every worker.

    :param watch: JSON of :class:`airflow_tpu.core.run.trigger_context.TriggerContext`.
    :param target: JSON of :class:`airflow_tpu.lifecycle.waits.target.Target`.
    :param unhealthy_since: Unix time since which the node is unhealthy, 0 while it is healthy or does not exist yet.
    :param coming_since: Unix time since which Google is at work on it, 0 while it is not.
    """

    def __init__(
        self,
        watch: Mapping[str, Any],
        target: Mapping[str, Any],
        unhealthy_since: float = 0.0,
        coming_since: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(watch, **kwargs)
        self.target = dict(target)
        self.unhealthy_since = unhealthy_since
        self.coming_since = coming_since

    def carried(self) -> dict[str, Any]:
        """The target, and what the task has seen of it."""
        seen = {"unhealthy_since": self.unhealthy_since, "coming_since": self.coming_since}
        return {"target": self.target, **seen}

    async def outcome(self) -> dict[str, Any]:
        """The instant it became READY, whose clock that is, and the host keys of its workers."""
        from airflow_tpu.lifecycle.waits.reachability import arrive

        access = await self.access()
        async with await self.hook().client() as client:
            policy = PollPolicy(self.watch.poll, self.watch.deadline, self.watch.began, self.watch.closing)
            target = json_form.from_json(Target, self.target)
            seen = UnhealthySince(self.unhealthy_since, self.coming_since)
            arrival, _ = await arrive(client, target, access, policy, seen)
        return {
            "status": "ready",
            "node": str(arrival.view.name),
            "ready_at": arrival.ready_at.isoformat(),
            "source": str(arrival.source),
            "host_keys": list(arrival.host_keys),
        }


class CloudTPUGoneTrigger(CloudTPUBaseTrigger):
    """Wait until the API no longer knows anything of a run.

    :param watch: JSON of :class:`airflow_tpu.core.run.trigger_context.TriggerContext`.
    :param names: full names of resources to read by name: lists may be stale.
    :param zones: zones that have to answer, those that the run has ever named; None: all zones of the project.
    """

    def __init__(
        self, watch: Mapping[str, Any], names: Sequence[str] = (), zones: Sequence[str] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(watch, **kwargs)
        self.names = list(names)
        self.zones = None if zones is None else list(zones)

    def carried(self) -> dict[str, Any]:
        """Names and zones."""
        return {"names": self.names, "zones": self.zones}

    async def outcome(self) -> dict[str, Any]:
        """Wait, delete again what has come back, and return how those incarnations ended."""
        from airflow_tpu.lifecycle.ends.deletion import Release
        from airflow_tpu.lifecycle.waits.gone import until_gone

        asked = Release([], [])
        async with await self.hook().client() as client:
            policy = PollPolicy(self.watch.poll, self.watch.deadline, self.watch.began)
            names = [ResourceName.parse(name) for name in self.names]
            await until_gone(client, self.watch.key, policy, asked, names, self.zones)
        return {"status": "gone", "endings": json_form.to_json(asked.endings)}

    async def on_kill(self) -> None:
        """The delete is under way already; there is nothing to stop."""
