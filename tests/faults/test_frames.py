# SPDX-License-Identifier: Apache-2.0
"""How far it is from an operator to the wire: our own frames on the stack when a request leaves."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from airflow.sdk import Context

from airflow_tpu.core.run.run_record import Holder
from airflow_tpu.lifecycle.lease import take_lease
from airflow_tpu.lifecycle.run_context import RunContext
from airflow_tpu.operators.tpu import CloudTPUCreateOperator
from localcloud.tpu_api.dispatcher import CallDispatcher
from localcloud.virtual_cloud import make_virtual_cloud
from tests.airflow_tpu.cloud_env import context
from tests.faults import virtual_context
from tests.faults.project import GRANT, RUNS
from tests.faults.virtual_context import VirtualContext
from tests.faults.virtual_processes import Process
from tests.faults.virtual_wire import VirtualBucket, VirtualChannel, VirtualStorage

MOST = 12
OURS = str(Path(sys.modules["airflow_tpu"].__path__[0]))
HOOK = str(Path(virtual_context.__file__))
"""Where the two frames are that stand for those of the hook: ``run`` and the coroutine in it."""


class Create(CloudTPUCreateOperator):
    """The operator of a run whose clients are virtual."""

    at: VirtualContext

    def run_context(self, context: Context) -> RunContext:
        """The run, through the clients of its process."""
        return self.at.run(RUNS[0])


def our_frames() -> Iterator[str]:
    """Names of our functions on the stack, from the innermost to the operator's ``execute``."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        if path.startswith(OURS) or (path == HOOK and name in ("run", "call")):
            yield name
        if path.startswith(OURS) and name == "execute":
            return


class Watched(VirtualStorage):
    """Storage that notes who writes the record of a run.

    :ivar writers: our frames at each write by a task.
    """

    def __init__(self, process: Process, bucket: VirtualBucket) -> None:
        super().__init__(process, bucket)
        self.writers: list[list[str]] = []

    def write_json(self, uri: str, data: Any, generation: int | None = None) -> int | None:
        """Note, then write."""
        frames = list(our_frames())
        if "/leases/" in uri and frames[-1] == "execute":
            self.writers.append(frames)
        return super().write_json(uri, data, generation)


def test_a_request_is_at_most_twelve_frames_away() -> None:
    """Neither the create call nor the write of the run's record is further from ``execute``."""
    cloud = make_virtual_cloud()
    process, callers = Process("create", cloud.clock), dict[str, list[str]]()

    def arrives(method: str, _: Any) -> None:
        callers[method] = list(our_frames())

    storage = Watched(process, VirtualBucket())
    at = VirtualContext(
        process, VirtualChannel(process, CallDispatcher(cloud.service, cloud.meter.calls), arrives), storage, GRANT
    )

    def body() -> None:
        take_lease(at.run(RUNS[0]), Holder())
        task = Create(task_id="create", conf={}, deferrable=False)
        task.at = at
        task.execute(context(RUNS[0]))

    process.start(body)
    while not process.ended:
        if process.asleep:
            cloud.pass_time(1.0)
        process.go()
    if process.error is not None:
        raise process.error
    assert len(storage.writers) > 1
    for frames in (callers["CreateNode"], *storage.writers):
        assert frames[-1] == "execute"
        assert len(frames) <= MOST, frames
