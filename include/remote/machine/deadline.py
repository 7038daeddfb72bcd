# SPDX-License-Identifier: Apache-2.0
"""The deadline of a run: planned in its job, and put off by the extend command."""

from __future__ import annotations

from typing import Any

import protocol

from machine.run_dir import RunDir


def current(run: RunDir, job: dict[str, Any]) -> float | None:
    """Return the Unix time at which the run ends, extensions included; None if it has no deadline."""
    planned = job.get("deadline")
    extended = (run.read(protocol.DEADLINE_FILE) or {}).get("deadline")
    if planned is None or not isinstance(extended, (int, float)):
        return None if planned is None else float(planned)
    return max(float(planned), float(extended))


def extend(run: RunDir, until: float) -> float | None:
    """Put the deadline off; one that is not later changes nothing. Return the deadline that counts now.

    :param until: Unix seconds, as is what is returned.
    :raises FileNotFoundError: if this machine does not know the attempt.
    """
    job = run.read(protocol.JOB_FILE)
    if job is None:
        raise FileNotFoundError("this machine knows no attempt %d of %s" % (run.attempt, run.run))
    now = current(run, job)
    if now is not None and until > now:
        run.write(protocol.DEADLINE_FILE, {"deadline": until})
    return current(run, job)
