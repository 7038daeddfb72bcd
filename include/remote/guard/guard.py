# SPDX-License-Identifier: Apache-2.0
"""The guard command: gives the TPU back when the deadline has passed and Airflow has made no contact since.

It is started beside the supervisor and outlives the run, its supervisor and every SSH connection, because the run may
have ended long before Airflow vanished. A reboot ends it, and the machine's startup script starts it again
(:mod:`guard.boot_guard`).
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import protocol

from commands.push import push
from commands.stop import stop
from gcs.requests import RequestFailed
from guard import own_node
from machine import contact, deadline
from machine.run_dir import RunDir

_LONGEST_SLEEP_SECS = 60.0  # the deadline may be put off, and the clock be set
_DELETE_SECS = 120.0  # from the answer to the delete to the end of this machine
_PUSHES = 3


class Guard:
    """Waits for the deadline and the silence of Airflow, then saves the output and deletes the TPU.

    :param run: the attempt.
    :param job: has ``deadline``, ``abandon_secs``, ``own_resource`` and ``artifacts_uri``.
    """

    def __init__(self, run: RunDir, job: dict[str, Any]) -> None:
        self._run = run
        self._job = job
        self._abandon = float(job.get("abandon_secs", protocol.ABANDON_SECS))
        self._not_before = 0.0

    def run(self) -> None:
        """Return when there is nothing left to guard."""
        while self.is_responsible():
            wait = self.abandoned_at() - time.time()
            if wait > 0:
                time.sleep(min(wait, _LONGEST_SLEEP_SECS))
            elif self._give_back():
                return
            else:
                self._not_before = time.time() + self._abandon

    def is_responsible(self) -> bool:
        """Tell whether this attempt is here and the last: a failed start removes it, a later one has its own guard.

        A later one may be of another run: several use the machine one after the other.
        """
        if not self._run.path.is_dir():
            return False
        return not any(
            self._is_later(path) for path in self._run.run_path.parent.glob("*/attempt-*/" + protocol.JOB_FILE)
        )

    def _is_later(self, job: Path) -> bool:
        if job.parent.parent == self._run.run_path:
            return int(job.parent.name.rpartition("-")[2]) > self._run.attempt
        own = self._run.path / protocol.JOB_FILE
        try:
            return job.stat().st_mtime_ns > own.stat().st_mtime_ns
        except FileNotFoundError:  # one of the two starts has failed just now; the next look sees that
            return False

    def abandoned_at(self) -> float:
        """Return the Unix time from which Airflow counts as gone: some time after deadline and last contact."""
        end = deadline.current(self._run, self._job)
        if end is None:
            return time.time() + _LONGEST_SLEEP_SECS
        return max(max(end, contact.last(self._run)) + self._abandon, self._not_before)

    def _give_back(self) -> bool:
        """Stop the run, upload its output, delete the TPU; return whether this machine is going down."""
        began = time.time()
        quiet = began - contact.last(self._run)
        text = (
            "deadline passed and no contact with Airflow for %.0f s: uploading the output and the log, then deleting %s"
        )
        self._log(text % (quiet, self._job["own_resource"]))
        stop(self._run, float(self._job.get("grace_secs", protocol.GRACE_SECS)))
        self._push()
        if contact.last(self._run) > began:
            self._log("Airflow is back: keeping the TPU, Airflow deletes it")
            return False
        return self._delete_tpu()

    def _push(self) -> None:
        """Push like the push command, a few times only: a bucket that refuses must not keep the TPU for ever."""
        uri = self._job.get("artifacts_uri")
        for _ in range(_PUSHES if uri else 0):
            try:
                with open(os.devnull, "wb") as unread:
                    push(self._run, str(uri), unread)
                return
            except (RequestFailed, OSError, ValueError, KeyError) as error:
                self._log("the output could not be uploaded, trying %d times in all: %s" % (_PUSHES, error))
                self._pause(_LONGEST_SLEEP_SECS)

    def _delete_tpu(self) -> bool:
        try:
            own_node.delete(self._job["own_resource"], self._pause)
            self._pause(_DELETE_SECS)
            reason = "the delete was accepted, but this machine is still here"
        except (RequestFailed, ValueError) as error:
            reason = str(error)
        self._log("the TPU could not be deleted from here (%s): shutting the machine down" % reason)
        reason = own_node.shut_down()
        if reason:
            self._log("the machine could not be shut down either (%s); trying both again later" % reason)
        return not reason

    def _pause(self, seconds: float) -> None:
        """Wait, but not longer than ``abandon_secs``."""
        time.sleep(min(seconds, self._abandon))

    def _log(self, text: str) -> None:
        """Write to the run's log, which goes into the bucket: there is no connection to report on."""
        try:
            with self._run.log.open("ab") as log:
                log.write(("airflow-tpu: " + text + "\n").encode("utf-8", "backslashreplace"))
        except OSError:
            print(text, flush=True)


def guard(run: RunDir) -> int:
    """Guard the TPU of an attempt until it is given back, or is the concern of another guard."""
    Guard(run, run.read(protocol.JOB_FILE) or {}).run()
    return 0
