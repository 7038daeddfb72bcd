# SPDX-License-Identifier: Apache-2.0
"""How long a TPU waits for Airflow: each command and each acknowledgement is a contact."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping

import pytest

from airflow_tpu import protocol
from tests.remote.guard_probe import ask_guard
from tests.remote.vm import RUN, Machine, named, until

CONTACTS: Mapping[str, Callable[[Machine], object]] = {
    "status": lambda machine: machine.status(),
    "stop": lambda machine: machine.stop(1.0),
    "push": lambda machine: machine.ask("push", *named(RUN), "--to", "nowhere"),
    "extend": lambda machine: machine.ask("extend", *named(RUN), "--deadline", "1"),
    "follow": lambda machine: machine.ask("follow", *named(RUN), data=protocol.encode(protocol.ACK, offset=0)),
}


@pytest.mark.parametrize("command", sorted(CONTACTS))
def test_every_command_is_a_contact(machine: Machine, command: str) -> None:
    """The time after which the TPU is given back begins anew with each of them, and not with the runner's own work."""
    machine.run("true")
    os.utime(machine.attempt() / protocol.CONTACT_FILE, (1000.0, 1000.0))
    due = "print(one.abandoned_at())"
    assert float(ask_guard(machine, due, deadline=1500.0, abandon_secs=600.0)) == 2100.0
    before = time.time() - 1.0  # the file system's clock is a little coarser
    CONTACTS[command](machine)
    assert float(ask_guard(machine, due, deadline=1500.0, abandon_secs=600.0)) >= before + 600.0


def test_an_acknowledgement_is_a_contact(machine: Machine) -> None:
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
