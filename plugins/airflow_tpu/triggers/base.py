# SPDX-License-Identifier: Apache-2.0
"""What the triggers share: hooks from connections, an event that is never too early, a fenced ``on_kill``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_tpu.core.run.trigger_context import TRIGGER_CONTEXT_FORM, TriggerContext, error_event
from airflow_tpu.errors import TPUError, TransientError, UnknownVersion

if TYPE_CHECKING:
    from airflow_tpu.hooks.tpu import CloudTPUAsyncHook
    from airflow_tpu.lifecycle.waits.reachability import Access

_LEASE_SECONDS = 10.0
"""How long ``on_kill`` waits for the lease; Airflow gives it 30 seconds (``[triggerer] on_kill_timeout``)."""


class CloudTPUBaseTrigger(BaseTrigger):
    """A wait that ends with one event: what it waited for, or an error of this package.

    :param watch: JSON of :class:`airflow_tpu.core.run.trigger_context.TriggerContext`.
    """

    def __init__(self, watch: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)  # type: ignore[no-untyped-call]  # Airflow's own
        self._watch = dict(watch)

    @cached_property
    def watch(self) -> TriggerContext:
        """The run, its connections and its deadlines.

        :raises UnknownVersion: a task of another release has made the trigger.
        """
        return TRIGGER_CONTEXT_FORM.from_json(self._watch, type(self).__name__)

    def carried(self) -> dict[str, Any]:
        """Arguments of the trigger beside its context, as plain JSON."""
        return {}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments."""
        arguments = {"watch": self._watch, **self.carried()}
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    async def outcome(self) -> dict[str, Any]:
        """Wait, and return the fields of the event.

        :raises TPUError: becomes an error event.
        """
        raise NotImplementedError

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield the one event."""
        from airflow_tpu.lifecycle.waits.polling import not_before

        try:
            event_after = self.watch.event_after
        except UnknownVersion as error:
            yield TriggerEvent(error_event(TransientError(f"{error}; the task re-attaches on its next try")))
            return
        try:
            event = await self.outcome()
        except TPUError as error:
            event = error_event(error)
        await not_before(event_after, time.time)
        yield TriggerEvent(event)

    async def on_kill(self) -> None:
        """Delete the TPU when a person has ended the task, and only then.

        Airflow 3.3.2 also calls this when a trigger merely moves to another triggerer
        (https://github.com/apache/airflow/pull/73454), so the task's state is read first; the token keeps an old
        attempt away from a TPU that a newer one has adopted. A task that was marked a success leaves its TPU to the
        tasks after it: what the training has produced so far is on that TPU.
        """
        state = await self._state()
        if state == "deferred":
            self.log.info("the task is still deferred: this trigger was moved, nothing is stopped")
            return
        if state == "success":
            self.log.info("the task was marked a success: its TPU is left to the tasks after it")
            return
        self.log.info("the task was ended by a person: deleting the TPU of %s", self.watch.key.name)
        await asyncio.to_thread(self._end_attempt)

    def _end_attempt(self) -> None:
        """Delete what carries this attempt's token, in a thread: Cloud Storage's client would hold the event loop."""
        from airflow_tpu.lifecycle.connections import Connections
        from airflow_tpu.lifecycle.release import abandon
        from airflow_tpu.lifecycle.run_context import RunContext

        watch = self.watch
        run = RunContext(watch.key, {}, Connections.of(watch))
        abandon(run, watch.token, _LEASE_SECONDS).check()

    def hook(self) -> CloudTPUAsyncHook:
        """Hook for the Cloud TPU API."""
        from airflow_tpu.hooks.tpu import CloudTPUAsyncHook

        return CloudTPUAsyncHook(
            gcp_conn_id=self.watch.gcp_conn_id, impersonation_chain=self.watch.impersonation_chain or None
        )

    async def access(self) -> Access:
        """Login and port; the key is read from the connection here, it never travels in the trigger's arguments."""
        from airflow.sdk import BaseHook

        from airflow_tpu.clients.ssh_login import read_login
        from airflow_tpu.lifecycle.waits.reachability import Access

        connection = await BaseHook.aget_connection(self.watch.ssh_conn_id)
        return Access(read_login(connection), await self.hook().options())

    async def _state(self) -> str | None:
        from airflow_tpu.clients.airflow_state import task_state

        instance = self.task_instance
        if instance is None:
            return "deferred"
        return await asyncio.to_thread(task_state, self.watch.key, instance.task_id)
