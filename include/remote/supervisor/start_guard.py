"""The start command's side of the guard: whether one is needed, and how it is left behind."""

from __future__ import annotations

import subprocess
from typing import Any

from machine.run_dir import RunDir
from supervisor.mirror_process import runner_command


def wanted(job: dict[str, Any]) -> bool:
    """Whether the job says when the TPU is to be given back, and which one it is."""
    return bool(job.get("own_resource")) and job.get("deadline") is not None


def leave_behind(run: RunDir) -> str:
    """Start the guard; returns why it could not be started, empty if it was. It is no reason not to run."""
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
