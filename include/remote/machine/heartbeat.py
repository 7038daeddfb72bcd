"""When Airflow was last heard of, and until when the run may go on: files that some commands write and others read."""

from __future__ import annotations

import os
from typing import Any

import protocol

from machine.run_dir import RunDir


def heard(run: RunDir) -> None:
    """Note that Airflow has been heard of now; of an attempt that is not here nothing is noted."""
    try:
        os.utime(str(run.path / protocol.CONTACT_FILE))
    except FileNotFoundError:
        return


def last_heard(run: RunDir) -> float:
    """Unix seconds of the last sign of Airflow, 0 if there was none."""
    try:
        return os.stat(str(run.path / protocol.CONTACT_FILE)).st_mtime
    except FileNotFoundError:
        return 0.0


def deadline(run: RunDir, job: dict[str, Any]) -> float | None:
    """Unix seconds at which the run ends, extensions included; None if it never does."""
    planned = job.get("deadline")
    extended = (run.read(protocol.DEADLINE_FILE) or {}).get("deadline")
    if planned is None or not isinstance(extended, (int, float)):
        return None if planned is None else float(planned)
    return max(float(planned), float(extended))


def extend(run: RunDir, until: float) -> float | None:
    """Put the deadline off; one that is not later changes nothing. Returns the deadline that counts now.

    :param until: Unix seconds, as is what is returned.
    :raises FileNotFoundError: if this machine does not know the attempt.
    """
    job = run.read(protocol.JOB_FILE)
    if job is None:
        raise FileNotFoundError("this machine knows no attempt %d of %s" % (run.attempt, run.run))
    now = deadline(run, job)
    if now is not None and until > now:
        run.write(protocol.DEADLINE_FILE, {"deadline": until})
    return deadline(run, job)
