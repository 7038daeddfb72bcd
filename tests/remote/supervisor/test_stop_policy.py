# SPDX-License-Identifier: Apache-2.0
"""When the supervisor stops its command."""

from __future__ import annotations

import time

from tests.remote.vm import Machine


def test_a_deadline_that_is_put_off_in_time_stops_nothing(machine: Machine) -> None:
    """The supervisor looks for an extension at the moment when it would stop the run."""
    machine.run("true", deadline=time.time() + 3600.0)
    code = (
        "import time; from machine.run_dir import RunDir; from supervisor import stop_policy; "
        "run = RunDir('run', 1); now = time.time(); "
        "stop = stop_policy.StopPolicy(run, {'deadline': now - 1.0}); early = stop.stopping; "
        "run.write('deadline.json', {'deadline': now + 3600.0}); stop.apply(list); "
        "late = stop_policy.StopPolicy(run, {'deadline': now - 1.0}); "
        "run.write('deadline.json', {'deadline': now - 0.5}); "
        "over = stop_policy.StopPolicy(run, {'deadline': now - 1.0}); "
        "over.apply(list); print(early, stop.past_deadline, over.past_deadline)"
    )
    assert machine.evaluate(code) == "False False True"


def test_a_request_that_came_with_the_end_counts(machine: Machine) -> None:
    """A shutdown signals the command and the supervisor at once: the command's end is no failure of its own then."""
    machine.run("true")
    code = (
        "from machine.run_dir import RunDir; from supervisor import stop_policy; "
        "stop = stop_policy.StopPolicy(RunDir('run', 1), {}); stop.request(); early = stop.requested; "
        "stop.apply_request(list); print(early, stop.requested, stop.by_command, stop.grace_left() < 30.0)"
    )
    assert machine.evaluate(code) == "False True False True"
