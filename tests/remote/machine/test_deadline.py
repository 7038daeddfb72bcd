# SPDX-License-Identifier: Apache-2.0
"""The deadline of a run can be put off, never brought forward."""

from __future__ import annotations

import time

from airflow_tpu import protocol
from airflow_tpu.core.run.job import RunRef
from tests.remote.guard_probe import ask_guard
from tests.remote.vm import RUN, Machine, named


def test_an_extension_postpones_everything(machine: Machine) -> None:
    """A later deadline counts for the stop of the run and for the guard; an earlier one changes nothing."""
    late = time.time() + 7200.0
    machine.start("sleep", "1000", deadline=late - 3600.0)
    assert machine.status()["deadline"] == late - 3600.0
    assert machine.ask("extend", *named(RUN), "--deadline", repr(late))["deadline"] == late
    assert machine.ask("extend", *named(RUN), "--deadline", repr(late - 7000.0))["deadline"] == late
    assert machine.status()["deadline"] == late
    assert (
        float(ask_guard(machine, "print(one.abandoned_at())", deadline=late - 3600.0, abandon_secs=60.0)) == late + 60.0
    )


def test_an_attempt_that_is_not_there_cannot_be_extended(machine: Machine) -> None:
    """The answer is an error, not a deadline that nothing enforces."""
    answer = machine.ask("extend", *named(RunRef("nobody", 1)), "--deadline", "1")
    assert (answer["type"], answer["reason"]) == (protocol.ERROR, "FileNotFoundError")
