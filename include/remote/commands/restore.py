# SPDX-License-Identifier: Apache-2.0
"""The restore command: the supervisor's first step, which downloads the newest complete checkpoint of the run.

It ends with 0 when the checkpoint directory holds that checkpoint, or there has never been one; with 74 when the bucket
cannot be read; with 66 when there are checkpoints and none can be used, or when they were saved with other code and the
job refuses that; with 75 when there is a later attempt.
"""

from __future__ import annotations

import datetime
import os
import shutil
from pathlib import Path
from typing import Any

import protocol

from checkpoints import origin
from checkpoints.bucket import CheckpointBucket, Overtaken, StoredCheckpoint
from checkpoints.local import is_blank
from checkpoints.manifest import MANIFEST, CheckpointManifest, parse
from checkpoints.upload import find_damage
from gcs.objects import ObjectDamaged
from gcs.requests import RequestFailed, Storage
from machine.run_dir import RunDir

_REFUSED = frozenset({400, 401, 403})  # 400: the bucket bills its readers, say


def restore(run: RunDir) -> int:
    """Fill the checkpoint directory of a run if it is empty; return the exit status of the step."""
    job = run.read(protocol.JOB_FILE) or {}
    try:
        if is_blank(run.checkpoints):
            status = _restore(run, CheckpointBucket(job["checkpoints_uri"], Storage(), run), job)
        else:
            origin.check_local(run, job)
            _say("resuming from the checkpoints that an earlier attempt left on this machine")
            status = protocol.EXIT_DONE
        if status == protocol.EXIT_DONE:
            origin.record(run, job)
        return status
    except origin.CodeChanged as error:
        _say("%s. Not resuming, as on_changed_code says: start a new run, or set on_changed_code to resume" % error)
        return protocol.EXIT_RESUME_REFUSED
    except Overtaken as error:
        _say("%s: not starting this one" % error)
        run.write(protocol.MIRROR_FILE, {"fenced": True, "error": str(error)})
        return protocol.EXIT_STOPPED
    except RequestFailed as error:
        if error.status in _REFUSED:
            _say("the machine's service account may not use the run's checkpoints: %s" % error)
            return protocol.EXIT_NO_ACCESS
        return _unreadable(error)
    except OSError as error:
        return _unreadable(error)


def _unreadable(error: Exception) -> int:
    _say("the checkpoints cannot be read; ending here, because the run would start from zero: %s" % error)
    return protocol.EXIT_STORAGE


def _restore(run: RunDir, bucket: CheckpointBucket, job: dict[str, Any]) -> int:
    bucket.claim()
    there = bucket.list_checkpoints()
    for stored in there:
        try:
            manifest = _fetch(run, bucket, stored, job)
        except (ObjectDamaged, ValueError) as error:
            _say("skipping checkpoint %s of attempt %d: %s" % (stored.name, stored.attempt, error))
            continue
        _record(run, bucket, stored, manifest)
        return protocol.EXIT_DONE
    if any(stored.manifest for stored in there):
        _say("none of the checkpoints below %s can be used; remove them to start again from zero" % bucket.uri)
        return protocol.EXIT_RESUME_REFUSED
    return protocol.EXIT_DONE


def _fetch(run: RunDir, bucket: CheckpointBucket, stored: StoredCheckpoint, job: dict[str, Any]) -> CheckpointManifest:
    """Download one checkpoint beside its place and move it there once it is complete.

    :raises ObjectDamaged: if files are missing or damaged.
    :raises ValueError: if its manifest is damaged, or has another version.
    :raises CodeChanged: if it was saved with other code and the job refuses that.
    """
    if stored.manifest is None:
        raise ObjectDamaged("it has no manifest")
    content = bucket.read(stored, MANIFEST)
    manifest = parse(content)
    stored = bucket.checked(stored)
    problem = find_damage(content, stored)
    if problem:
        raise ObjectDamaged(problem)
    staging = run.run_path / ".restoring"
    shutil.rmtree(str(staging), ignore_errors=True)
    target = staging if manifest.is_file_set else staging / stored.name
    target.mkdir(mode=0o700, parents=True)
    bucket.fetch(stored, [entry.path for entry in manifest.files], target)
    for name, points_to in manifest.links.items():
        (target / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.symlink(points_to, str(target / name))
    if not manifest.is_file_set:
        (target / MANIFEST).write_bytes(content)
    origin.check_stored(bucket, stored, job)
    # Whatever is left there is half-written, as its name says; the directory is replaced in one step.
    shutil.rmtree(str(run.checkpoints))
    os.rename(str(staging), str(run.checkpoints))
    return manifest


def _record(run: RunDir, bucket: CheckpointBucket, stored: StoredCheckpoint, manifest: CheckpointManifest) -> None:
    path: Path = run.checkpoints if manifest.is_file_set else run.checkpoints / stored.name
    document: dict[str, Any] = {
        "path": str(path),
        "step": manifest.step,
        "saved_at": manifest.created,
        "attempt": stored.attempt,
    }
    run.write(protocol.RESTORED_FILE, document)
    when = "" if manifest.created is None else " at " + _format_time(manifest.created)
    what = stored.name if manifest.step is None else "%s (step %d)" % (stored.name, manifest.step)
    _say("restored checkpoint %s, saved by attempt %d%s, from %s" % (what, stored.attempt, when, bucket.uri))
    if manifest.left_out:
        _say("not in the checkpoint, because they never stopped changing: %s" % ", ".join(manifest.left_out))


def _format_time(instant: float) -> str:
    return datetime.datetime.fromtimestamp(instant, datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def _say(text: str) -> None:
    """Write a line to the run's log, which is standard output."""
    print("airflow-tpu: " + text, flush=True)
