"""The mirror command: a child of the supervisor that keeps the newest complete checkpoint in the bucket.

It tells what it does in ``mirror.json``, and in the run's log only when storage begins or ceases to make trouble. It
ends with its supervisor, whose end of the pipe on standard input it watches.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any, Iterator

import protocol

from checkpoints import local
from checkpoints.quiescence import Stillness
from checkpoints.remote import Overtaken, Remote
from checkpoints.upload import Torn, Uploader
from gcs.objects import Damaged
from gcs.requests import Failure, Storage
from gcs.upload import Changed
from machine.run_dir import RunDir

LOOK_SECS = 5.0
_LONGEST_PAUSE_SECS = 60.0
_HURRY_SECS = 0.3  # between two tries while the supervisor waits for the last one
_LOOKS_PER_CLAIM = 12  # a script that saves seldom must not train on beside the attempt that has replaced it
_NICE = 5  # the training comes first
_ERROR_LIMIT = 300


class Orders:
    """What the supervisor says: one line when the command has ended, the end of the pipe when it is dead itself.

    :param pipe: descriptor whose other end is the supervisor's alone.
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
        """Whether the command has ended: nobody writes checkpoints any more."""
        return self._finish.is_set()

    def pause(self, seconds: float) -> None:
        """Wait, but not long once the supervisor waits, too."""
        if self.finishing or self._finish.wait(seconds):
            time.sleep(min(seconds, _HURRY_SECS))


class Mirror:
    """Looks, uploads, reports.

    :param run: the attempt.
    :param uploader: does the work.
    :param orders: when to finish.
    :param look_secs: seconds between two looks, and how long files without a manifest must keep still.
    """

    def __init__(self, run: RunDir, uploader: Uploader, orders: Orders, look_secs: float = LOOK_SECS) -> None:
        self._run = run
        self._uploader = uploader
        self._orders = orders
        self._look_secs = look_secs
        self._stillness = Stillness(run.checkpoints, look_secs)
        self._durable = ""
        self._torn: set[str] = set()
        self._failures = 0
        self._looks = 0
        self._status: dict[str, Any] = dict.fromkeys(("last_step", "last_name", "last_at", "pending"))
        self._status.update(error="", fenced=False)

    def run(self) -> bool:
        """Mirror until told to finish; return whether everything complete is in the bucket.

        :raises Overtaken: if another attempt has taken the run over.
        """
        while True:
            finishing = self._orders.finishing  # before the look: what it finds then is all there will ever be
            good = self._look(finishing)
            if finishing and good:
                return not self._stillness.lost
            if not finishing:
                self._orders.pause(min(self._look_secs * 2**self._failures, _LONGEST_PAUSE_SECS))
            elif not good:
                time.sleep(_HURRY_SECS)

    def _look(self, finishing: bool) -> bool:
        self._looks += 1
        try:
            if self._looks % _LOOKS_PER_CLAIM == 0:
                self._uploader.check_claims()
            return self._secure_newest(finishing)
        except Overtaken as error:
            self._report(pending=None, fenced=True, error=str(error))
            _say("%s: this attempt is over, nothing of it is mirrored any more" % error)
            raise
        except (Changed, FileNotFoundError):
            return False  # there is a newer one by now, or there will be
        except (Failure, Damaged, OSError) as error:
            self._complain(error)
        return False

    def _secure_newest(self, finishing: bool) -> bool:
        for one in self._candidates(finishing):
            if one.identity == self._durable:
                self._report(pending=None)
                return True
            if one.identity in self._torn:
                continue
            self._report(pending=one.name)
            try:
                self._uploader.secure(one)
            except Torn as error:
                self._torn.add(one.identity)
                _say("checkpoint %s is not mirrored: %s" % (one.name, error))
                continue
            self._secured(one)
            return True
        return True

    def _candidates(self, finishing: bool) -> Iterator[local.Candidate]:
        root = self._run.checkpoints
        if local.has_manifests(root):
            yield from local.committed(root)
            return
        now, step = time.monotonic(), self._step()
        found = self._stillness.last(now, step, self._orders.trusted) if finishing else self._stillness.take(now, step)
        if found is not None:
            yield found

    def _step(self) -> int | None:
        """Without a manifest only the script's progress tells the step; it may be a little ahead of the files."""
        step = (self._run.progress() or {}).get("step")
        return step if isinstance(step, int) and not isinstance(step, bool) and step >= 0 else None

    def _secured(self, one: local.Candidate) -> None:
        self._durable = one.identity
        if self._failures:
            _say("checkpoints are mirrored again")
        self._failures = 0
        self._report(last_step=one.step, last_name=one.name, last_at=round(time.time(), 3), pending=None, error="")
        try:
            self._uploader.retire(one)
        except Failure as error:
            self._report(error=("old checkpoints cannot be removed: %s" % error)[:_ERROR_LIMIT])

    def _complain(self, error: Exception) -> None:
        """Storage trouble never ends the run, and is told once, not at every try."""
        if not self._failures:
            _say("checkpoints cannot be mirrored for now, trying again: %s" % error)
        self._failures += 1
        self._report(error=str(error)[:_ERROR_LIMIT])

    def _report(self, **changes: Any) -> None:
        status = {**self._status, **changes}
        if status != self._status or not self._status["last_at"]:
            self._status = status
            self._run.write(protocol.MIRROR_FILE, status)


def mirror(run: RunDir) -> int:
    """Mirror the checkpoints of a run while its supervisor lives; returns 0 if all that is complete is durable.

    It ends at once with :data:`protocol.EXIT_OVERTAKEN` when another attempt has taken over: that wakes the supervisor.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # a machine that is shut down signals everybody; the supervisor decides
    os.nice(_NICE)
    job = run.read(protocol.JOB_FILE) or {}
    orders = Orders()
    uploader = Uploader(Remote(job["checkpoints_uri"], Storage(orders.pause), run), run)
    try:
        return 0 if Mirror(run, uploader, orders, float(job.get("mirror_secs", LOOK_SECS))).run() else 1
    except Overtaken:
        return protocol.EXIT_OVERTAKEN


def _say(text: str) -> None:
    """Standard output is the run's log."""
    print("airflow-tpu: " + text, flush=True)
