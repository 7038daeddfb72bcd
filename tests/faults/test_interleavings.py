"""Thousands of interleavings of everything that creates or deletes a TPU, in virtual time.

A run of Hypothesis is one history: it chooses who goes on by how many requests, who dies where, what Google and other
people do meanwhile. After every single request the promises of :meth:`Project.check` hold; at the end nothing is left.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tests.faults import flows
from tests.faults.ending import settle
from tests.faults.project import RUNS, Project, order
from tests.faults.turns import Process

CROWD = 6
"""Processes at a time: with more of them each would hardly ever get its turn."""

run = st.sampled_from(RUNS)
anybody = st.integers(0, CROWD - 1)
BROKEN_CALLS = st.sampled_from(["CreateNode", "CreateQueuedResource", "DeleteNode", "DeleteQueuedResource", "List*"])
HARM = st.sampled_from(
    [
        {"action": "lose-response"},
        {"action": "error", "code": 14},
        {"action": "error", "code": 13},
        {"action": "error", "code": 8, "message": "There is no more capacity in the zone"},
        {"action": "error", "code": 7, "message": "denied"},
    ]
)
OPERATIONS = st.sampled_from(
    [{"action": "never"}, {"action": "error", "code": 8}, {"action": "error", "code": 13, "resource": "proceeds"}]
)


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

    @precondition(_has_room)
    @rule(key=run, queued=st.booleans(), steps=st.integers(0, 9))
    def lease(self, key: object, queued: bool, steps: int) -> None:
        """The setup task of a run starts, for the first time or after a clear."""
        self.project.states[key] = "running"
        begun = self.project.start(f"lease {key.run_id}", lambda at: flows.lease(at, key, order(queued)))
        self.project.go(begun, steps)

    @precondition(_has_room)
    @rule(key=run, queued=st.booleans(), seconds=st.sampled_from([0.0, 100.0, 7200.0]), steps=st.integers(0, 30))
    def train(self, key: object, queued: bool, seconds: float, steps: int) -> None:
        """A try of the training starts; an older one may still be there, or think so."""
        begun = self.project.start(f"train {key.run_id}", lambda at: flows.train(at, key, order(queued), seconds))
        self.project.go(begun, steps)

    @precondition(_has_room)
    @rule(key=run, steps=st.integers(0, 30))
    def give_back(self, key: object, steps: int) -> None:
        """The teardown of a run starts."""
        self.project.go(self.project.start(f"teardown {key.run_id}", lambda at: flows.teardown(at, key)), steps)

    @precondition(_has_room)
    @rule(steps=st.integers(0, 30))
    def reaper(self, steps: int) -> None:
        """A round of the reaper starts, also beside another one."""
        states = {(key.dag_id, key.run_id): state for key, state in self.project.states.items()}
        begun = self.project.start("reaper", lambda at: flows.reaper(at, lambda *ids: states[ids]))
        self.project.go(begun, steps)

    @precondition(lambda self: self._has_room() and self.project.leases)
    @rule(age=st.integers(0, 3), steps=st.integers(0, 9))
    def late_kill(self, age: int, steps: int) -> None:
        """An attempt is told to end, perhaps long after a newer one has started."""
        held = self.project.leases[-1 - age % len(self.project.leases)]
        begun = self.project.start(f"on_kill {held.token}", lambda at: flows.on_kill(at, held), held.token)
        self.project.go(begun, steps)

    @precondition(_has_any)
    @rule(which=anybody, steps=st.integers(1, 12))
    def go(self, which: int, steps: int) -> None:
        """One process goes on alone."""
        self.project.go(self._chosen(which), steps)

    @precondition(_has_any)
    @rule(which=anybody)
    def kill(self, which: int) -> None:
        """One process dies where it is."""
        self.project.kill(self._chosen(which))

    @rule(seconds=st.sampled_from([1.0, 20.0, 120.0, 900.0]))
    def together(self, seconds: float) -> None:
        """Everybody works while time passes."""
        self.project.together(seconds)

    @rule(seconds=st.sampled_from([5.0, 45.0, 600.0, 7 * 3600.0]))
    def wait(self, seconds: float) -> None:
        """Time passes and nobody gets a turn; seven hours are longer than any lease."""
        self.project.wait(seconds)

    @rule(which=anybody, notice=st.sampled_from([0.0, 30.0]))
    def preempt(self, which: int, notice: float) -> None:
        """Google takes a TPU back."""
        self.project.preempt(which, notice)

    @rule(which=anybody)
    def vanish(self, which: int) -> None:
        """Somebody deletes a node by hand."""
        self.project.vanish(which)

    @rule(key=run, state=st.sampled_from(["success", "failed", ""]))
    def end_run(self, key: object, state: str) -> None:
        """A DAG run ends, or is deleted."""
        self.project.states[key] = state

    @rule(method=BROKEN_CALLS, harm=HARM)
    def break_call(self, method: str, harm: dict[str, object]) -> None:
        """The next call of some method goes wrong."""
        self.project.fault("tpu.call", match={"method": method}, **harm)

    @rule(verb=st.sampled_from(["create", "delete"]), harm=OPERATIONS)
    def break_operation(self, verb: str, harm: dict[str, object]) -> None:
        """The next operation goes wrong although the call was accepted."""
        self.project.fault("tpu.operation", match={"verb": verb}, **harm)

    @rule(times=st.integers(1, 4))
    def silence(self, times: int) -> None:
        """The zone does not answer the next list calls."""
        self.project.fault("tpu.zone", times, {"zone": "us-central1-f"}, action="unreachable")

    def teardown(self) -> None:
        """Whatever happened, nothing is left and every second is in the ledger."""
        settle(self.project)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The log of a million requests is of no use to anybody."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


TestInterleavings = Interleavings.TestCase
