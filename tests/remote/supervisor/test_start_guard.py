# SPDX-License-Identifier: Apache-2.0
"""Which runs get a guard."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.remote.vm import Machine, until

NODE = "projects/local-project/locations/us-central1-f/nodes/forgotten"


@pytest.mark.parametrize("missing", ["own_resource", "deadline"])
def test_a_job_without_a_deadline_or_a_tpu_has_no_guard(machine: Machine, missing: str) -> None:
    """Nothing is left behind that could not do anything."""
    fields: dict[str, Any] = {"own_resource": NODE, "deadline": time.time() + 3600.0}
    del fields[missing]
    machine.start("sleep", "1000", **fields)
    until(lambda: machine.status()["state"] == "running")
    assert not (machine.attempt() / "guard.err").exists()
