"""How long a TPU waits for Airflow: commands and acknowledgements are signs of it, and a deadline can be put off."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from airflow_tpu import protocol
from airflow_tpu.core.run.job import RunRef
from tests.remote.vm import RUN, Machine, named, until

NODE = "projects/local-project/locations/us-central1-f/nodes/forgotten"


def probe(machine: Machine, code: str, **job: Any) -> str:
    """Ask a guard of the started attempt something."""
    setting = (
        "import json; from guard import guard; from machine import heartbeat; from machine.run_dir import RunDir; "
        f"run = RunDir('run', 1); job = json.loads({json.dumps(job)!r})"
    )
    return machine.evaluate(f"{setting}; one = guard.Guard(run, job); {code}")


SIGNS: Mapping[str, Callable[[Machine], object]] = {
    "status": lambda machine: machine.status(),
    "stop": lambda machine: machine.stop(1.0),
    "push": lambda machine: machine.ask("push", *named(RUN), "--to", "nowhere"),
    "extend": lambda machine: machine.ask("extend", *named(RUN), "--deadline", "1"),
    "follow": lambda machine: machine.ask("follow", *named(RUN), data=protocol.encode(protocol.ACK, offset=0)),
}


@pytest.mark.parametrize("sign", sorted(SIGNS))
def test_every_command_is_a_sign_of_airflow(machine: Machine, sign: str) -> None:
    """The time after which the TPU is given back begins anew with each of them, and not with the runner's own work."""
    machine.run("true")
    os.utime(machine.attempt() / protocol.CONTACT_FILE, (1000.0, 1000.0))
    due = "print(one.abandoned_at())"
    assert float(probe(machine, due, deadline=1500.0, abandon_secs=600.0)) == 2100.0
    before = time.time() - 1.0  # the file system's clock is a little coarser
    SIGNS[sign](machine)
    assert float(probe(machine, due, deadline=1500.0, abandon_secs=600.0)) >= before + 600.0


def test_what_a_follower_acknowledges_is_a_sign_of_airflow(machine: Machine) -> None:
    """An acknowledgement counts although it acknowledges nothing new: a silent run is followed all the same."""
    machine.start("sleep", "1000")
    contact = machine.attempt() / protocol.CONTACT_FILE
    command, environment = machine.command("follow", *named(RUN)), machine.environment()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as follower:
        assert follower.stdin is not None
        assert follower.stdout is not None
        assert protocol.decode(follower.stdout.readline())["type"] == protocol.HEARTBEAT
        os.utime(contact, (1000.0, 1000.0))
        follower.stdin.write(protocol.encode(protocol.ACK, offset=0))
        follower.stdin.flush()
        until(lambda: contact.stat().st_mtime > 1000.0, 90.0)
        follower.kill()


def test_an_extension_postpones_everything(machine: Machine) -> None:
    """A later deadline counts for the stop of the run and for the guard; an earlier one changes nothing."""
    late = time.time() + 7200.0
    machine.start("sleep", "1000", deadline=late - 3600.0)
    assert machine.status()["deadline"] == late - 3600.0
    assert machine.ask("extend", *named(RUN), "--deadline", repr(late))["deadline"] == late
    assert machine.ask("extend", *named(RUN), "--deadline", repr(late - 7000.0))["deadline"] == late
    assert machine.status()["deadline"] == late
    assert float(probe(machine, "print(one.abandoned_at())", deadline=late - 3600.0, abandon_secs=60.0)) == late + 60.0


def test_a_deadline_that_is_put_off_in_time_stops_nothing(machine: Machine) -> None:
    """The supervisor looks for an extension at the moment when it would stop the run."""
    machine.run("true", deadline=time.time() + 3600.0)
    code = (
        "import time; from supervisor import stop_policy; now = time.time(); "
        "stop = stop_policy.StopPolicy(run, {'deadline': now - 1.0}); early = stop.begun; "
        "run.write('deadline.json', {'deadline': now + 3600.0}); stop.attend(list); "
        "late = stop_policy.StopPolicy(run, {'deadline': now - 1.0}); "
        "run.write('deadline.json', {'deadline': now - 0.5}); "
        "over = stop_policy.StopPolicy(run, {'deadline': now - 1.0}); "
        "over.attend(list); print(early, stop.past_deadline, over.past_deadline)"
    )
    assert probe(machine, code) == "False False True"


def test_an_attempt_that_is_not_there_cannot_be_extended(machine: Machine) -> None:
    """The answer is an error, not a deadline that nobody keeps."""
    answer = machine.ask("extend", *named(RunRef("nobody", 1)), "--deadline", "1")
    assert (answer["type"], answer["reason"]) == (protocol.ERROR, "FileNotFoundError")


def test_the_guard_of_an_earlier_attempt_leaves_the_field(machine: Machine) -> None:
    """A later attempt on the same machine is guarded by itself; a start that failed leaves nothing to guard."""
    machine.run("true")
    assert probe(machine, "print(one.is_responsible())") == "True"
    machine.start("true", run=RunRef("run", 2))
    assert probe(machine, "print(one.is_responsible())") == "False"
    gone = "import shutil; shutil.rmtree(str(run.run_path)); print(one.is_responsible())"
    assert probe(machine, gone) == "False"


@pytest.mark.parametrize("missing", ["own_resource", "deadline"])
def test_a_job_without_a_deadline_or_a_tpu_has_no_guard(machine: Machine, missing: str) -> None:
    """Nothing is left behind that could not do anything."""
    fields: dict[str, Any] = {"own_resource": NODE, "deadline": time.time() + 3600.0}
    del fields[missing]
    machine.start("sleep", "1000", **fields)
    until(lambda: machine.status()["state"] == "running")
    assert not (machine.attempt() / "guard.err").exists()
