# SPDX-License-Identifier: Apache-2.0
"""Nothing waits or tries for ever: a silent zone elsewhere, a node that takes its time, a create that is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from airflow_tpu.core.ledger.events import Closed, EndReason, event_from_bytes
from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.errors import CreateRefused, CreateUnanswered, TPUError, TransientError
from airflow_tpu.lifecycle.creating.refusals import REFUSALS, UNANSWERED
from airflow_tpu.lifecycle.ends.expired import Reaped
from airflow_tpu.lifecycle.ensure_tpu import ensure_tpu
from airflow_tpu.lifecycle.reap import reap
from airflow_tpu.lifecycle.release import abandon, end_overdue
from tests.airflow_tpu.identities import AIRFLOW
from tests.faults import tasks
from tests.faults.project import RUNS, Project
from tests.faults.virtual_context import POLL, TERM_HOURS, TO_THE_END, ZONE, VirtualContext
from tests.faults.virtual_processes import Process

RUN = RUNS[0]
ELSEWHERE = "us-east1-d"
"""A zone of the project in which no run ever asks."""

HOURS = 4 * 3600.0
BOOTED = 300.0
BOTH = pytest.mark.parametrize("queued", [False, True], ids=["node", "queued-resource"])


def silence(project: Project, zone: str) -> str:
    """Let a zone answer no list any more."""
    project.fault("tpu.zone", 100_000, {"zone": zone}, action="unreachable")
    return zone


def start(project: Project, queued: bool, key: RunKey = RUN) -> Process:
    """A run that will train for hours, before its first request."""

    def steps(at: VirtualContext) -> None:
        tasks.lease(at, key, queued)
        tasks.train(at, key, queued, HOURS)

    return project.start("run", steps)


def retry(project: Project, queued: bool) -> Process:
    """The next try of the training."""
    return project.start("train", lambda at: tasks.train(at, RUN, queued, HOURS))


def calls(project: Project) -> Counter[str]:
    """How often each method was called so far."""
    return Counter(project.cloud.meter.calls.counts)


def lists(found: Counter[str]) -> int:
    """Calls that list the whole project."""
    return found["Tpu/ListNodes"] + found["Tpu/ListQueuedResources"]


def closed(project: Project) -> list[Closed]:
    """Ends in the ledger."""
    texts = [text for name, (_, text) in sorted(project.bucket.objects.items()) if name.endswith("/closed.json")]
    return [event for event in map(event_from_bytes, texts) if isinstance(event, Closed)]


def ends(project: Project) -> list[EndReason]:
    """Their reasons."""
    return [event.end_reason for event in closed(project)]


def is_given_back(project: Project) -> bool:
    """Whether neither lease nor chips of the run are held."""
    _, reserved = project.bucket.objects["airflow-tpu-shared/local-project/reservations.json"]
    return project.record(RUN) is None and RUN.digest not in reserved


# -- a zone in which this run never asked ----------------------------------------------------------------------------


@BOTH
def test_a_silent_zone_elsewhere_delays_no_create(project: Project, queued: bool) -> None:
    """The first TPU and its replacement are asked for at once, with the few lists that every try needs."""
    silence(project, ELSEWHERE)
    process = start(project, queued)
    project.together(BOOTED)
    project.kill(process)
    project.preempt(0, 0.0)
    project.together(60.0)
    before = calls(project)
    retry(project, queued)
    project.together(60.0)
    assert [one.node_id for one in project.living()] == [RUN.node_id(2)]
    assert lists(calls(project) - before) <= 20


@BOTH
def test_a_silent_zone_elsewhere_delays_no_teardown(project: Project, queued: bool) -> None:
    """The TPU is deleted, its record closed, lease and chips are given back, in one try."""
    silence(project, ELSEWHERE)
    project.kill(booted(project, queued))
    teardown = project.start("teardown", lambda at: tasks.end(at, RUN))
    project.together(120.0)
    assert (teardown.ended, teardown.error) == (True, None)
    assert (project.living(), ends(project)) == ([], [EndReason.FINISHED])
    assert is_given_back(project)


def booted(project: Project, queued: bool = False) -> Process:
    """A run that trains."""
    process = start(project, queued)
    project.together(BOOTED)
    return process


def test_a_silent_zone_elsewhere_fails_no_kill_and_no_alert(project: Project) -> None:
    """A person who ends a task and the alert at the deadline delete the TPU and report no failure."""
    silence(project, ELSEWHERE)
    project.kill(booted(project))
    token = project.runs[-1].lease.token
    kill = project.start("on_kill", lambda at: abandon(at.run(RUN), token).check())
    project.together(60.0)
    assert (kill.ended, kill.error, project.living()) == (True, None, [])
    project.wait(TERM_HOURS * 3600.0)
    alert = project.start("alert", lambda at: end_overdue(at.grant, RUN))
    project.together(60.0)
    assert (alert.ended, alert.error) == (True, None)


def reaped(project: Project) -> Process:
    """A round of the reaper to its end."""
    found: list[Reaped] = []
    process = project.start("reaper", lambda at: found.append(reap(at.grant, project.state_of, AIRFLOW)))
    project.together(120.0)
    assert process.ended
    if process.error is None:
        assert found[0].to_json()["unreachable"] == [ELSEWHERE]
    return process


def test_a_silent_zone_elsewhere_fails_no_reaper(project: Project) -> None:
    """The round deletes what has expired, closes its record and says in its result which zone was silent."""
    silence(project, ELSEWHERE)
    project.kill(booted(project))
    project.states[RUN] = "failed"
    assert reaped(project).error is None
    assert (project.living(), ends(project)) == ([], [EndReason.FINISHED])
    assert is_given_back(project)


# -- a zone in which it did ------------------------------------------------------------------------------------------


def test_the_run_s_own_zone_decides(project: Project) -> None:
    """While the zone of a TPU is silent neither teardown nor reaper calls it gone, and both fail by its name."""
    project.kill(booted(project))
    project.states[RUN] = "failed"
    silence(project, ZONE)
    project.fault("tpu.call", 100_000, {"name": f"*/{ZONE}/*"}, action="error", code=9, message="zone is away")
    bodies: list[Callable[[VirtualContext], object]]
    bodies = [lambda at: tasks.end(at, RUN), lambda at: reap(at.grant, project.state_of, AIRFLOW)]
    for body in bodies:
        process = project.start("end", body)
        project.together(120.0)
        assert isinstance(process.error, TransientError)
        assert ZONE in str(process.error)
    assert ends(project) == []
    assert not is_given_back(project)


def test_a_zone_that_was_named_before_decides(project: Project) -> None:
    """A run that moved on to another zone still waits for the first one: a create may have arrived late there."""
    project.kill(booted(project))
    key = f"trc/leases/{RUN.name}.json"
    generation, text = project.bucket.objects[key]
    project.bucket.objects[key] = (generation, text.replace(f'"zone": "{ZONE}"', f'"zone": "{ELSEWHERE}"'))
    silence(project, ZONE)
    teardown = project.start("teardown", lambda at: tasks.end(at, RUN))
    project.together(60.0)
    assert ZONE in str(teardown.error)
    assert not is_given_back(project)


# -- a terminated node that takes its time ---------------------------------------------------------------------------


@BOTH
def test_a_terminated_node_is_watched_with_few_calls(project: Project, queued: bool) -> None:
    """A try that waits for the last TPU to go looks ever more rarely: a dozen lists a minute, not two hundred."""
    project.kill(booted(project, queued))
    project.fault("tpu.operation", 1, {"verb": "delete"}, action="error", code=13, after=120.0)
    project.preempt(0, 0.0)
    project.wait(60.0)
    before = calls(project)
    retry(project, queued)
    project.together(120.0)
    found = calls(project) - before
    assert len(project.living()) == 0
    assert sum(found.values()) / 2 <= 40, found
    assert lists(found) / 2 <= 20, found


# -- a create that is refused for good -------------------------------------------------------------------------------

FOR_GOOD = [
    pytest.param(False, "tpu.call", {"method": "CreateNode"}, {"action": "error", "code": 13}, id="node"),
    pytest.param(True, "tpu.call", {"method": "CreateQ*"}, {"action": "error", "code": 9}, id="queued-resource"),
    pytest.param(False, "tpu.operation", {"verb": "create"}, {"action": "error", "code": 13}, id="its operation"),
    pytest.param(True, "queued.timeline", {}, {"fail": {"code": 13, "message": "internal"}}, id="provisioning"),
]


def tries(project: Project, queued: bool, most: int = 10) -> list[TPUError]:
    """What the tries of a task end with, up to the first that ends for good or has a TPU."""
    errors: list[TPUError] = []

    def attempt(at: VirtualContext) -> None:
        run = at.run(RUN, queued)
        try:
            ensure_tpu(run, run.stores.runs.read(RUN), TO_THE_END)
        except TPUError as error:
            errors.append(error)

    while len(errors) < most:
        before = len(errors)
        project.start("create", attempt)
        project.together(600.0)
        if len(errors) == before or not isinstance(errors[-1], TransientError):
            break
    return errors


def take_lease(project: Project, queued: bool) -> None:
    """The setup task."""
    project.start("lease", lambda at: tasks.lease(at, RUN, queued))
    project.together(10.0)


@pytest.mark.parametrize(("queued", "point", "match", "params"), FOR_GOOD)
def test_a_create_that_is_refused_for_good_costs_three_tries(
    project: Project, queued: bool, point: str, match: dict[str, str], params: dict[str, Any]
) -> None:
    """The call, its operation and the request in the queue alike: three incarnations, then a final error."""
    take_lease(project, queued)
    project.fault(point, 100_000, match, **params)
    errors = tries(project, queued)
    assert [type(error) for error in errors] == [TransientError] * (REFUSALS - 1) + [CreateRefused]
    assert "look at the last answer" in str(errors[-1])
    record = project.record(RUN)
    assert record is not None
    assert (record.incarnation, record.refusals) == (REFUSALS, 0)
    assert project.living() == []


def test_refusals_with_a_tpu_between_them_are_no_row(project: Project) -> None:
    """A TPU that became READY begins a new row, and so does the person who clears the task."""
    take_lease(project, queued=False)
    project.fault("tpu.call", REFUSALS - 1, {"method": "CreateNode"}, action="error", code=13)
    assert len(tries(project, queued=False)) == REFUSALS - 1
    project.preempt(0, 0.0)
    project.together(30.0)
    project.fault("tpu.call", REFUSALS, {"method": "CreateNode"}, action="error", code=13)
    assert isinstance(tries(project, queued=False)[-1], CreateRefused)
    assert tries(project, queued=False) == []


def test_an_api_that_does_not_answer_is_no_refusal(project: Project) -> None:
    """Creates without an answer say nothing of the request: more of them are tried than of refused ones."""
    take_lease(project, queued=False)
    project.fault("tpu.call", 2 * REFUSALS, {"method": "CreateNode"}, action="error", code=14)
    assert len(tries(project, queued=False)) == 2 * REFUSALS
    assert [one.node_id for one in project.living()] == [RUN.node_id(2 * REFUSALS + 1)]


@pytest.mark.parametrize("code", [14, 4, 10])
def test_creates_that_are_never_answered_have_a_bound(project: Project, code: int) -> None:
    """So many tries and incarnations, then an error that says so; a person who clears the task gets as many again."""
    take_lease(project, queued=False)
    for first in (0, UNANSWERED):
        project.fault("tpu.call", UNANSWERED, {"method": "CreateNode"}, action="error", code=code)
        errors = tries(project, queued=False, most=UNANSWERED + 5)
        assert [type(error) for error in errors] == [TransientError] * (UNANSWERED - 1) + [CreateUnanswered]
        assert "were not answered" in str(errors[-1])
        record = project.record(RUN)
        assert record is not None
        assert (record.incarnation, record.unanswered) == (first + UNANSWERED, 0)
    assert project.living() == []
    assert tries(project, queued=False) == []


@BOTH
def test_a_delete_whose_answer_is_lost_prolongs_nothing(project: Project, queued: bool) -> None:
    """The teardown succeeds in one try, asks for each delete once, and books what the meter has, to the second."""
    project.kill(booted(project, queued))
    project.fault("tpu.call", 100_000, {"method": "Delete*"}, action="lose-response")
    before = calls(project)
    teardown = project.start("teardown", lambda at: tasks.end(at, RUN))
    project.together(120.0)
    assert (teardown.ended, teardown.error) == (True, None)
    assert sum(count for name, count in (calls(project) - before).items() if "Delete" in name) == 1
    (event,) = closed(project)
    assert (event.end_reason, is_given_back(project)) == (EndReason.FINISHED, True)
    assert event.ended_at is not None
    assert event.ready_at is not None
    extra = (event.ended_at - event.ready_at).total_seconds() - project.cloud.meter.ready_seconds(event.node_id)
    assert -1e-3 <= extra <= (POLL if queued else 1.0)
