# SPDX-License-Identifier: Apache-2.0
"""Follow a run on its TPU until it has finished, or the TPU is lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_tpu.core import json_form
from airflow_tpu.core.run.trigger_context import BEHIND, error_event
from airflow_tpu.errors import TPUError
from airflow_tpu.triggers.base import CloudTPUBaseTrigger


class CloudTPURunTrigger(CloudTPUBaseTrigger):
    """Stream the log of a run into the task's log; end with its result.

    :param watch: JSON of :class:`airflow_tpu.core.run.trigger_context.TriggerContext`.
    :param job: JSON of :class:`airflow_tpu.lifecycle.training.follow.RunningJob`.
    """

    def __init__(self, watch: Mapping[str, Any], job: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(watch, **kwargs)
        self.job = dict(job)

    def carried(self) -> dict[str, Any]:
        """The job."""
        return {"job": self.job}

    async def outcome(self) -> dict[str, Any]:
        """The result that the worker recorded, or the error that ended the run; and the newest step and checkpoint."""
        from airflow_tpu.lifecycle.training.follow import Follower, RunningJob

        access = await self.access()
        async with await self.hook().client() as client:
            job = json_form.from_json(RunningJob, self.job)
            follower = Follower(client, access.login, job, self.log.info)
            try:
                # Airflow 3.3.2 takes 4 kB of all logs of a triggerer between two looks at its database.
                result = await follower.until_finished(self.watch.deadline, is_slow=True)
            except TPUError as error:
                return {**error_event(error), "reached": json_form.to_json(follower.reached)}
        reached = json_form.to_json(follower.reached)
        if result is None:
            self.log.info("the script prints faster than a triggerer writes: its log continues in a worker")
            return {"status": BEHIND, "job": json_form.to_json(follower.job), "reached": reached}
        return {"status": "finished", "result": json_form.to_json(result), "reached": reached}
