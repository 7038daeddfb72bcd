# SPDX-License-Identifier: Apache-2.0
"""Thousands of interleavings of everything that creates or deletes a TPU, in virtual time.

A run of Hypothesis is one history: it chooses which process continues by how many requests, which dies where, what
Google and other people do meanwhile. After every single request the promises of :meth:`Project.check` hold; at the end
nothing is left.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.lifecycle.reap import reap
from tests.airflow_tpu.identities import AIRFLOW
from tests.faults import tasks
from tests.faults.ending import settle
from tests.faults.project import RUNS, Project
from tests.faults.virtual_context import ZONE, VirtualContext
from tests.faults.virtual_processes import Process

HISTORIES = os.environ.get("HISTORIES", "")
"""How many, each with thirty choices, a choice with up to forty requests. ``make soak`` asks for 2,000, new ones each
time; without a number the same sixty are told each time."""

CROWD = 6
"""Processes at a time: with more of them each would hardly ever get its turn."""

run = st.sampled_from(RUNS)
anybody = st.integers(0, CROWD - 1)
AFEW, MANY = st.integers(0, 10), st.integers(0, 40)
REFUSALS = [
    {"action": "lose-response"},
    {"action": "error", "code": 14},
    {"action": "error", "code": 13},
    {"action": "error", "code": 8, "message": "There is no more capacity in the zone"},
    {"action": "error", "code": 7, "message": "denied"},
]
METHODS = ["CreateNode", "CreateQueuedResource", "DeleteNode", "DeleteQueuedResource", "UpdateNode", "List*", "Get*"]
OUTCOMES = [
    {"action": "never"},
    {"action": "error", "code": 8},
    {"action": "error", "code": 13, "resource": "proceeds"},
]
TROUBLE = st.one_of(
    st.builds(
        lambda method, harm: ("tpu.call", {"method": method}, harm), st.sampled_from(METHODS), st.sampled_from(REFUSALS)
    ),
    st.builds(lambda harm: ("tpu.operation", {"verb": "create"}, harm), st.sampled_from(OUTCOMES)),
    st.just(("tpu.operation", {"verb": "delete"}, {"action": "never"})),
    st.just(("tpu.zone", {"zone": ZONE, "method": "List*"}, {"action": "unreachable"})),
    st.builds(lambda event: ("tpu.list", {"event": event}, {"seconds": 90.0}), st.sampled_from(["create", "delete"])),
    st.just(("queued.timeline", {}, {"wait": "forever"})),
    st.just(("queued.timeline", {}, {"fail": {"code": 8}})),
)
"""What goes wrong the next time: a call, an operation although its call was accepted, a zone, a list that is behind, a
place in the queue."""


class Interleavings(RuleBasedStateMachine):
    """A history of one project."""

    def __init__(self) -> None:
        super().__init__()
        self.project = Project()

    def _chosen(self, which: int) -> Process:
        return self.project.processes[which % len(self.project.processes)]

    def _has_room(self) -> bool:
        return len(self.project.processes) < CROWD

    def _has_any(self) -> bool:
        return bool(self.project.processes)

    def _begin(self, title: str, steps: int, body: Callable[[VirtualContext], object]) -> None:
        self.project.go(self.project.start(title, body), steps)

    @initialize(queued=st.booleans(), steps=MANY)
    def first(self, queued: bool, steps: int) -> None:
        """There is a run from the beginning."""
        self.run_starts(RUNS[0], queued, 7200.0, steps)

    @precondition(_has_room)
    @rule(key=run, queued=st.booleans(), seconds=st.sampled_from([0.0, 600.0, 7200.0]), steps=MANY)
    def run_starts(self, key: RunKey, queued: bool, seconds: float, steps: int) -> None:
        """A run starts, or starts anew after a clear: its setup, then its training."""
        self.project.states[key] = "running"

        def tried(at: VirtualContext) -> None:
            tasks.lease(at, key, queued)
            tasks.train(at, key, queued, seconds)

        self._begin(f"run of {key.run_id}", steps, tried)

    @precondition(_has_room)
    @rule(key=run, queued=st.booleans(), seconds=st.sampled_from([0.0, 7200.0]), steps=MANY)
    def train_again(self, key: RunKey, queued: bool, seconds: float, steps: int) -> None:
        """A try of the training starts; an older one may still be there, or think so."""
        self._begin(f"train of {key.run_id}", steps, lambda at: tasks.train(at, key, queued, seconds))

    @precondition(_has_room)
    @rule(key=run, steps=MANY)
    def give_back(self, key: RunKey, steps: int) -> None:
        """The teardown of a run starts."""
        self._begin(f"teardown of {key.run_id}", steps, lambda at: tasks.end(at, key))

    @precondition(_has_room)
    @rule(steps=MANY)
    def reaper(self, steps: int) -> None:
        """A round of the reaper starts, also beside another one."""
        self._begin("reaper", steps, lambda at: reap(at.grant, self.project.state_of, AIRFLOW))

    @precondition(lambda self: self._has_room() and self.project.runs)
    @rule(age=st.integers(0, 3), steps=AFEW)
    def late_kill(self, age: int, steps: int) -> None:
        """An attempt is asked to end, perhaps long after a newer one has started."""
        held = self.project.runs[-1 - age % len(self.project.runs)]
        key, token = held.key, held.lease.token
        self._begin(f"on_kill of {key.run_id} {token[:4]}", steps, lambda at: tasks.kill(at, key, token))

    @precondition(_has_any)
    @rule(which=anybody, steps=st.integers(1, 10))
    def go(self, which: int, steps: int) -> None:
        """One process continues alone."""
        self.project.go(self._chosen(which), steps)

    @precondition(_has_any)
    @rule(which=anybody)
    def kill(self, which: int) -> None:
        """One process dies where it is."""
        self.project.kill(self._chosen(which))

    @rule(seconds=st.sampled_from([1.0, 20.0, 60.0, 300.0]))
    def together(self, seconds: float) -> None:
        """All processes work while time passes."""
        self.project.together(seconds)

    @rule(seconds=st.sampled_from([5.0, 45.0, 600.0, 600.0, 7 * 3600.0]))
    def wait(self, seconds: float) -> None:
        """Time passes and no process gets a turn; seven hours are longer than any lease."""
        self.project.wait(seconds)

    @rule(which=anybody, how=st.sampled_from(["at once", "with notice", "by hand"]))
    def lose(self, which: int, how: str) -> None:
        """Google takes a TPU back, or a person deletes it."""
        if how == "by hand":
            self.project.vanish(which)
        else:
            self.project.preempt(which, 30.0 if how == "with notice" else 0.0)

    @rule(key=run, state=st.sampled_from(["success", "failed", ""]))
    def end_run(self, key: RunKey, state: str) -> None:
        """A DAG run ends, or is deleted."""
        self.project.states[key] = state

    @precondition(lambda self: not self.project.cloud.faults.unused())
    @rule(trouble=TROUBLE)
    def trouble(self, trouble: tuple[str, dict[str, str], dict[str, object]]) -> None:
        """Something is going to go wrong; one thing at a time, or nothing would ever go right."""
        point, match, harm = trouble
        self.project.fault(point, 1, match, **harm)

    def teardown(self) -> None:
        """Whatever happened, nothing is left and every second is in the ledger."""
        settle(self.project)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Leave out the log of a million requests, which is of no use."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


# A history takes a quarter of a second of work, more on a busy machine.
TestInterleavings = pytest.mark.timeout(3600)(Interleavings.TestCase)
TestInterleavings.settings = settings(
    max_examples=int(HISTORIES or 60), derandomize=not HISTORIES, stateful_step_count=30
)
