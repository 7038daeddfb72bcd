# SPDX-License-Identifier: Apache-2.0
"""The first start of an Airflow: several tasks make its identity at once, some of them die, and all others agree.

A history is a list of choices which task sends its next request, to Airflow or to the bucket, and which one dies where
it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_tpu.core.tpu.identity import VARIABLE
from airflow_tpu.hooks.artifacts import ArtifactsHook
from airflow_tpu.lifecycle.sharing.identity import find_or_make
from airflow_tpu.stores.airflows import AirflowStore
from airflow_tpu.stores.store import LONGEST_PAUSE
from localcloud.clock import ManualClock
from tests.faults.virtual_processes import Killed, Process
from tests.faults.virtual_wire import VirtualBucket, VirtualStorage

TASKS = 4
ROOT = "gs://trc-local/airflow-tpu-shared/local-project"

choices = st.tuples(st.integers(0, TASKS - 1), st.sampled_from(["goes", "goes", "goes", "dies"]))


@dataclass
class VirtualVariables:
    """Variables of one Airflow, each request of which is a turn; the last write of a key counts.

    :param process: stopped before each request.
    :param values: by key, shared by all processes.
    """

    process: Process
    values: dict[str, str]

    def get(self, key: str) -> str | None:
        """Value of a key."""
        self.process.stop_before(f"get {key}")
        return self.values.get(key)

    def put(self, key: str, value: str, description: str) -> None:
        """Write a key."""
        self.process.stop_before(f"put {key}")
        self.values[key] = value

    def keys(self, prefix: str) -> list[str]:
        """Keys that begin so, at one instant."""
        self.process.stop_before(f"list {prefix}")
        return [key for key in self.values if key.startswith(prefix)]

    def remove(self, key: str) -> None:
        """Remove a key."""
        self.process.stop_before(f"remove {key}")
        self.values.pop(key, None)


@dataclass
class FirstStart:
    """One Airflow and its bucket.

    :ivar found: identity that each task has come to, by its title.
    """

    clock: ManualClock = field(default_factory=ManualClock)
    bucket: VirtualBucket = field(default_factory=VirtualBucket)
    values: dict[str, str] = field(default_factory=dict)
    found: dict[str, str] = field(default_factory=dict)

    def task(self, title: str) -> Process:
        """Begin a task; it stops before its first request."""
        process = Process(title, self.clock)
        variables = VirtualVariables(process, self.values)
        store = AirflowStore(cast(ArtifactsHook, VirtualStorage(process, self.bucket)), ROOT, clock=process.clock)
        process.start(lambda: self.found.update({title: find_or_make(variables, lambda: store)}))
        return process


def step(airflow: FirstStart, process: Process) -> None:
    """Let a task send its next request; one that waits after a lost race waits to the end."""
    if process.asleep:
        airflow.clock.advance(LONGEST_PAUSE)
    process.go()


@settings(max_examples=150, derandomize=True)
@given(st.lists(choices, max_size=60))
def test_every_task_that_lives_has_the_one_identity(history: list[tuple[int, str]]) -> None:
    """Also the one that starts after all others have ended or died, and whatever these have left behind."""
    airflow = FirstStart()
    processes = [airflow.task(f"task {number}") for number in range(TASKS)]
    for which, what in history:
        if what == "dies" and not processes[which].ended:
            processes[which].kill()
        else:
            step(airflow, processes[which])
    for process in [*processes, airflow.task("later")]:
        while not process.ended:
            step(airflow, process)
        assert process.error is None or isinstance(process.error, Killed), process.error
    assert set(airflow.found.values()) == {airflow.values[VARIABLE]}
    assert "later" in airflow.found
