# SPDX-License-Identifier: Apache-2.0
"""The start command's side of the guard: whether one is needed, and how it is started."""

from __future__ import annotations

import subprocess
from typing import Any

from machine.run_dir import RunDir
from supervisor.mirror_process import runner_command


def is_needed(job: dict[str, Any]) -> bool:
    """Tell whether the job names a TPU and when it has to be given back."""
    return bool(job.get("own_resource")) and job.get("deadline") is not None


def launch(run: RunDir) -> str:
    """Start the guard; return why it could not be started, empty if it was. The run starts all the same."""
    try:
        with open(str(run.path / "guard.err"), "ab") as complaints:
            subprocess.Popen(
                runner_command("guard", run),
                stdin=subprocess.DEVNULL,
                stdout=complaints,
                stderr=complaints,
                start_new_session=True,
            )
    except OSError as error:
        return str(error)
    return ""
