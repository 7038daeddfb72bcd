# SPDX-License-Identifier: Apache-2.0
"""The mirror command: a child of the supervisor that keeps the newest complete checkpoint in the bucket.

Its state is in ``mirror.json``; in the run's log are only the beginning and the end of storage trouble, and checkpoints
that cannot be mirrored. It ends with its supervisor, whose end of the pipe on standard input it watches.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import Any, Iterator

import protocol

from checkpoints import local
from checkpoints.bucket import CheckpointBucket, Overtaken
from checkpoints.quiescence import Quiescence
from checkpoints.soft_delete import SoftDelete
from checkpoints.upload import Torn, Uploader
from gcs.objects import ObjectDamaged
from gcs.requests import RequestFailed, Storage
from gcs.source import FileChanged
from machine import working_dir
from machine.run_dir import RunDir

_LONGEST_PAUSE_SECS = 60.0
_HURRY_SECS = 0.3  # between two tries while the supervisor waits for the last one
_LOOKS_PER_CLAIM = 12  # a script that saves seldom must not train on beside the attempt that has overtaken it
_NICE = 5  # the training comes first
_ERROR_LIMIT = 180  # characters of any script: with two names they fit into the bytes that are reserved
_AT_RISK = (
    "%s (%d file(s) in all) lies in the working directory, which is saved when the run ends: a TPU that is taken away "
    "before takes it along. Write checkpoints to TRC_CHECKPOINT_DIR and results to TRC_OUTPUT_DIR"
)


class SupervisorPipe:
    """What the supervisor writes: one line when the command has ended; the pipe ends when the supervisor is dead.

    :param pipe: descriptor whose other end only the supervisor holds.
    """

    def __init__(self, pipe: int = 0) -> None:
        self._pipe = pipe
        self._finish = threading.Event()
        self.trusted = True
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        # Not through sys.stdin: a thread that waits in it keeps the interpreter from ending well.
        line = os.read(self._pipe, 64)
        while line:
            self.trusted = line.strip() != protocol.FINISH_KILLED
            self._finish.set()
            line = os.read(self._pipe, 64)
        os._exit(1)

    @property
    def finishing(self) -> bool:
        """Whether the command has ended and writes no more checkpoints."""
        return self._finish.is_set()

    def pause(self, seconds: float) -> None:
        """Wait, but only a moment once the supervisor waits for the end."""
        if self.finishing or self._finish.wait(seconds):
            time.sleep(min(seconds, _HURRY_SECS))


class Mirror:
    """Looks for checkpoints, uploads the newest, reports.

    :param run: the attempt.
    :param uploader: writes to the bucket.
    :param supervisor: says when to finish.
    :param soft_delete: counts what the bucket keeps of removed checkpoints.
    :param look_secs: seconds between two looks; files without a manifest must not change for as long.
    """

    def __init__(
        self,
        run: RunDir,
        uploader: Uploader,
        supervisor: SupervisorPipe,
        soft_delete: SoftDelete,
        look_secs: float = protocol.MIRROR_SECS,
    ) -> None:
        self._run = run
        self._uploader = uploader
        self._supervisor = supervisor
        self._soft_delete = soft_delete
        self._look_secs = look_secs
        self._quiescence = Quiescence(run.checkpoints, look_secs)
        self._durable = ""
        self._rejected: set[str] = set()
        self._failures = 0
        self._looks = 0
        self._told = False
        self._status: dict[str, Any] = dict.fromkeys(("last_step", "last_name", "last_at", "pending"))
        self._status.update(error="", fenced=False)

    def run(self) -> bool:
        """Mirror until the command has ended; return whether everything complete is in the bucket.

        :raises Overtaken: if another attempt has taken the run over.
        """
        while True:
            finishing = self._supervisor.finishing  # read before the look: what that finds is then the last
            good = self._look(finishing)
            if finishing and good:
                total = self._soft_delete.total()
                if total:
                    _say(total)
                return not self._quiescence.unsafe
            if not finishing:
                self._supervisor.pause(min(self._look_secs * 2**self._failures, _LONGEST_PAUSE_SECS))
            elif not good:
                time.sleep(_HURRY_SECS)

    def _look(self, finishing: bool) -> bool:
        self._looks += 1
        try:
            if self._looks % _LOOKS_PER_CLAIM == 0:
                self._tell_of_working_dir()
                self._uploader.check_claims()
            return self._upload_newest(finishing)
        except Overtaken as error:
            self._report(pending=None, fenced=True, error=str(error))
            _say("%s: stopping this attempt, its checkpoints are no longer mirrored" % error)
            raise
        except (FileChanged, FileNotFoundError):
            return False  # the next look finds a newer one
        except (RequestFailed, ObjectDamaged, OSError) as error:
            self._complain(error)
        return False

    def _tell_of_working_dir(self) -> None:
        """Log once that the command writes where nothing outlives the TPU."""
        left = [] if self._told else working_dir.left_files(self._run, "")
        if left:
            self._told = True
            _say(_AT_RISK % (left[0].name, len(left)))

    def _upload_newest(self, finishing: bool) -> bool:
        for one in self._candidates(finishing):
            if one.identity == self._durable:
                self._report(pending=None)
                return True
            if one.identity in self._rejected:
                continue
            self._report(pending=one.name)
            try:
                self._uploader.upload(one)
            except Torn as error:
                self._reject(one.identity, one.name, str(error))
                continue
            self._uploaded(one)
            return True
        return True

    def _candidates(self, finishing: bool) -> Iterator[local.LocalCheckpoint]:
        root = self._run.checkpoints
        if local.has_manifests(root):
            for name, reason in local.list_unknown(root).items():
                self._reject(name, name, reason)
            yield from local.list_committed(root)
            return
        now, step = time.monotonic(), self._step()
        if finishing:
            found = self._quiescence.final(now, step, self._supervisor.trusted)
        else:
            found = self._quiescence.poll(now, step)
        if found is not None:
            yield found

    def _reject(self, identity: str, name: str, reason: str) -> None:
        """Log once that a checkpoint is left alone."""
        if identity not in self._rejected:
            self._rejected.add(identity)
            _say("checkpoint %s is not mirrored: %s" % (name, reason))

    def _step(self) -> int | None:
        """Without a manifest only progress.json has the step; it may be a little ahead of the files."""
        step = (self._run.progress() or {}).get("step")
        return step if isinstance(step, int) and not isinstance(step, bool) and step >= 0 else None

    def _uploaded(self, one: local.LocalCheckpoint) -> None:
        self._durable = one.identity
        if self._failures:
            _say("checkpoints are mirrored again")
        self._failures = 0
        self._report(last_step=one.step, last_name=one.name, last_at=round(time.time(), 3), pending=None, error="")
        try:
            line = self._soft_delete.add(self._uploader.remove_old(one))
        except RequestFailed as error:
            self._report(error=("old checkpoints cannot be removed: %s" % error)[:_ERROR_LIMIT])
            return
        if line:
            _say(line)

    def _complain(self, error: Exception) -> None:
        """Storage trouble never ends the run, and is logged once, not at every try."""
        if not self._failures:
            _say("checkpoints cannot be mirrored for now, retrying: %s" % error)
        self._failures += 1
        self._report(error=str(error)[:_ERROR_LIMIT])

    def _report(self, **changes: Any) -> None:
        status = {**self._status, **changes}
        if status != self._status or not self._status["last_at"]:
            self._status = status
            with contextlib.suppress(OSError, ValueError):  # a full disk keeps people from the state, not from a mirror
                self._run.write(protocol.MIRROR_FILE, status)


def mirror(run: RunDir) -> int:
    """Mirror the checkpoints of a run while its supervisor lives; return 0 if everything complete is durable.

    It ends at once with :data:`protocol.EXIT_OVERTAKEN` when another attempt takes over, which wakes the supervisor.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # a shutdown signals every process; the supervisor decides
    os.nice(_NICE)
    job = run.read(protocol.JOB_FILE) or {}
    supervisor = SupervisorPipe()
    uploader = Uploader(CheckpointBucket(job["checkpoints_uri"], Storage(supervisor.pause), run), run)
    look_secs = float(job.get("mirror_secs", protocol.MIRROR_SECS))
    try:
        return 0 if Mirror(run, uploader, supervisor, SoftDelete(job), look_secs).run() else 1
    except Overtaken:
        return protocol.EXIT_OVERTAKEN


def _say(text: str) -> None:
    """Write a line to the run's log, which is standard output; a full disk must not end the mirror."""
    with contextlib.suppress(OSError):
        os.write(1, ("airflow-tpu: " + text + "\n").encode("utf-8", "backslashreplace"))
