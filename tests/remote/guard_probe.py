# SPDX-License-Identifier: Apache-2.0
"""Questions to a guard, asked among the modules that were shipped to a machine."""

from __future__ import annotations

import json
from typing import Any

from tests.remote.vm import Machine


def ask_guard(machine: Machine, code: str, **job: Any) -> str:
    """Run ``code`` with ``one``, a guard of the started attempt; return what it prints."""
    setting = (
        "import json; from guard import guard; from machine.run_dir import RunDir; "
        f"run = RunDir('run', 1); job = json.loads({json.dumps(job)!r})"
    )
    return machine.evaluate(f"{setting}; one = guard.Guard(run, job); {code}")
