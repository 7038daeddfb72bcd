# SPDX-License-Identifier: Apache-2.0
"""The source code that a checkpoint was saved with: a run that resumes with other code says so, or is not resumed.

The code is a digest that the job names. Each attempt writes its own into its claim in the bucket, and beside the
checkpoints on this machine.
"""

from __future__ import annotations

from typing import Any

import protocol

from checkpoints.bucket import CheckpointBucket, StoredCheckpoint
from gcs.objects import ObjectDamaged
from machine.run_dir import RunDir, read_json, versioned, write_json

_SHOWN = 12  # characters of a digest
_UNKNOWN = "unknown code"


class CodeChanged(Exception):
    """The checkpoints were saved with other code, and the job does not allow that."""


def check_local(run: RunDir, job: dict[str, Any]) -> None:
    """Compare the code of the job with that of the attempt which ran on this machine before.

    :raises CodeChanged: if it differs and the job refuses that.
    """
    document = read_json(run.run_path / protocol.CODE_FILE) or {}
    _check(job, document.get("code"), "an earlier attempt on this machine")


def check_stored(bucket: CheckpointBucket, stored: StoredCheckpoint, job: dict[str, Any]) -> None:
    """Compare the code of the job with that of the attempt which saved a checkpoint.

    :raises CodeChanged: if it differs and the job refuses that.
    """
    try:
        code = bucket.code_of(stored.attempt)
    except (ObjectDamaged, ValueError):
        code = None
    _check(job, code, "attempt %d" % stored.attempt)


def record(run: RunDir, job: dict[str, Any]) -> None:
    """Write the code of this attempt beside the checkpoints, for the next attempt on this machine."""
    write_json(run.run_path / protocol.CODE_FILE, versioned({"code": job.get("code") or ""}))


def _check(job: dict[str, Any], saved: object, who: str) -> None:
    mine = job.get("code") or ""
    if not mine or saved == mine:
        return
    was = saved[:_SHOWN] if isinstance(saved, str) and saved else _UNKNOWN
    text = "the code has changed: the checkpoint was saved by %s with %s, and this attempt has %s" % (
        who,
        was,
        mine[:_SHOWN],
    )
    if job.get("refuse_changed_code"):
        raise CodeChanged(text)
    print("airflow-tpu: %s; the model will be a mixture of both" % text, flush=True)
