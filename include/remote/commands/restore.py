"""The restore command: a step of the supervisor before all others, on a machine that knows nothing of the run.

It ends with 0 when the checkpoint directory holds the newest complete checkpoint, or there has never been one; with 74
when the bucket does not say; with 66 when there are checkpoints and none is whole; with 75 when a later attempt lives.
"""

from __future__ import annotations

import datetime
import os
import shutil
from pathlib import Path
from typing import Any

import protocol

from checkpoints.local import is_blank
from checkpoints.manifest import MANIFEST, Manifest, parse
from checkpoints.remote import Kept, Overtaken, Remote
from checkpoints.upload import problem_of
from gcs.objects import Damaged
from gcs.requests import Failure, Storage
from machine.run_dir import RunDir

_REFUSED = frozenset({401, 403})


def restore(run: RunDir) -> int:
    """Fill the checkpoint directory of a run if it is empty; returns the exit status of the step."""
    job = run.read(protocol.JOB_FILE) or {}
    try:
        if not is_blank(run.checkpoints):
            _say("an earlier attempt has left its checkpoints on this machine")
            return protocol.EXIT_DONE
        return _restore(run, Remote(job["checkpoints_uri"], Storage(), run))
    except Overtaken as error:
        _say("%s: this one does not start" % error)
        run.write(protocol.MIRROR_FILE, {"fenced": True, "error": str(error)})
        return protocol.EXIT_STOPPED
    except Failure as error:
        if error.status in _REFUSED:
            _say("the machine's service account may not use the run's checkpoints: %s" % error)
            return protocol.EXIT_NO_ACCESS
        return _unreadable(error)
    except OSError as error:
        return _unreadable(error)


def _unreadable(error: Exception) -> int:
    _say("the checkpoints cannot be read, and without them the run would start from zero: %s" % error)
    return protocol.EXIT_STORAGE


def _restore(run: RunDir, remote: Remote) -> int:
    remote.claim()
    there = remote.look()
    for kept in there:
        try:
            manifest = _bring(run, remote, kept)
        except (Damaged, ValueError) as error:
            _say("passing over checkpoint %s of attempt %d: %s" % (kept.name, kept.attempt, error))
            continue
        _record(run, remote, kept, manifest)
        return protocol.EXIT_DONE
    if any(kept.manifest for kept in there):
        _say("none of the checkpoints below %s is whole; remove them to start again from zero" % remote.uri)
        return protocol.EXIT_RESUME_REFUSED
    return protocol.EXIT_DONE


def _bring(run: RunDir, remote: Remote, kept: Kept) -> Manifest:
    """Fetch one checkpoint beside its place and move it there once it is whole.

    :raises Damaged: if it is not.
    :raises ValueError: the same, said by its manifest.
    """
    if kept.manifest is None:
        raise Damaged("it has no manifest")
    content = remote.read(kept, MANIFEST)
    manifest = parse(content)
    problem = problem_of(content, kept)
    if problem:
        raise Damaged(problem)
    staging = run.run_path / ".restoring"
    shutil.rmtree(str(staging), ignore_errors=True)
    target = staging if manifest.is_set else staging / kept.name
    target.mkdir(mode=0o700, parents=True)
    remote.fetch(kept, [entry.path for entry in manifest.files], target)
    for name, points_to in manifest.links.items():
        (target / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.symlink(points_to, str(target / name))
    if not manifest.is_set:
        (target / MANIFEST).write_bytes(content)
    # What is left there is half-written by its name; the directory itself is replaced in one step.
    shutil.rmtree(str(run.checkpoints))
    os.rename(str(staging), str(run.checkpoints))
    return manifest


def _record(run: RunDir, remote: Remote, kept: Kept, manifest: Manifest) -> None:
    path: Path = run.checkpoints if manifest.is_set else run.checkpoints / kept.name
    document: dict[str, Any] = {
        "path": str(path),
        "step": manifest.step,
        "saved_at": manifest.created,
        "attempt": kept.attempt,
    }
    run.write(protocol.RESTORED_FILE, document)
    when = "" if manifest.created is None else " at " + _shown(manifest.created)
    what = kept.name if manifest.step is None else "%s (step %d)" % (kept.name, manifest.step)
    _say("restored checkpoint %s, saved by attempt %d%s, from %s" % (what, kept.attempt, when, remote.uri))
    if manifest.left_out:
        _say("not in it, because they were written all the time: %s" % ", ".join(manifest.left_out))


def _shown(instant: float) -> str:
    return datetime.datetime.fromtimestamp(instant, datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def _say(text: str) -> None:
    """Standard output is the run's log."""
    print("airflow-tpu: " + text, flush=True)
