"""The guard command: gives the TPU back when its deadline has passed and Airflow has not been heard of since.

It is started beside the supervisor and is nobody's child, so that it outlives the run, its supervisor and every SSH
connection: an Airflow that never comes back may leave a run that has long ended. A reboot ends it; from then on only
the expiry label of the node and whoever reaps by it are left.
"""

from __future__ import annotations

import os
import time
from typing import Any

import protocol

from commands.push import push
from commands.stop import stop
from gcs.requests import Failure
from guard import own_node
from machine import heartbeat
from machine.run_dir import RunDir

_LONGEST_SLEEP_SECS = 60.0  # the deadline may be put off, and the clock be set
_PATIENCE_SECS = 120.0  # between the answer to the delete and the end of this machine
_PUSHES = 3


class Guard:
    """Waits, looks, and at last winds everything up.

    :param run: the attempt.
    :param job: names the deadline, ``abandon_secs``, the TPU and where the artifacts go.
    """

    def __init__(self, run: RunDir, job: dict[str, Any]) -> None:
        self._run = run
        self._job = job
        self._abandon = float(job.get("abandon_secs", protocol.ABANDON_SECS))
        self._not_before = 0.0

    def watch(self) -> None:
        """Return when there is nothing left to guard."""
        while self.in_charge():
            wait = self.due() - time.time()
            if wait > 0:
                time.sleep(min(wait, _LONGEST_SLEEP_SECS))
            elif self._wind_up():
                return
            else:
                self._not_before = time.time() + self._abandon

    def in_charge(self) -> bool:
        """A start that failed takes its directory away; a later attempt on this machine has a guard of its own."""
        if not self._run.path.is_dir():
            return False
        begun = self._run.run_path.glob("attempt-*/" + protocol.JOB_FILE)
        return not any(int(path.parent.name.rpartition("-")[2]) > self._run.attempt for path in begun)

    def due(self) -> float:
        """When Airflow counts as gone for good: it has had its time after the deadline, and after its last sign."""
        end = heartbeat.deadline(self._run, self._job)
        if end is None:
            return time.time() + _LONGEST_SLEEP_SECS
        return max(max(end, heartbeat.last_heard(self._run)) + self._abandon, self._not_before)

    def _wind_up(self) -> bool:
        """Stop, save, give back; returns whether this machine is going down."""
        began = time.time()
        quiet = began - heartbeat.last_heard(self._run)
        text = "the deadline has passed, Airflow was last heard of %.0f s ago: saving what there is, then deleting %s"
        self._say(text % (quiet, self._job["own_resource"]))
        stop(self._run, float(self._job.get("grace_secs", 30.0)))
        self._push()
        if heartbeat.last_heard(self._run) > began:
            self._say("Airflow is back: this TPU is left to it")
            return False
        return self._leave()

    def _push(self) -> None:
        """As the push command does; a bucket that refuses must not keep the TPU for ever."""
        uri = self._job.get("artifacts_uri")
        for _ in range(_PUSHES if uri else 0):
            try:
                with open(os.devnull, "wb") as nobody:
                    push(self._run, str(uri), nobody)
                return
            except (Failure, OSError, ValueError, KeyError) as error:
                self._say("what the run produced could not be saved: %s" % error)
                self._pause(_LONGEST_SLEEP_SECS)

    def _leave(self) -> bool:
        try:
            own_node.delete(self._job["own_resource"], self._pause)
            self._pause(_PATIENCE_SECS)
            reason = "it was accepted, but this machine is still here"
        except (Failure, ValueError) as error:
            reason = str(error)
        self._say("the TPU could not be deleted from here (%s): shutting the machine down" % reason)
        reason = own_node.shut_down()
        if reason:
            self._say("the machine could not be shut down either (%s); trying all of it again later" % reason)
        return not reason

    def _pause(self, seconds: float) -> None:
        """Nothing takes longer than the time that Airflow is given."""
        time.sleep(min(seconds, self._abandon))

    def _say(self, text: str) -> None:
        """Into the run's log, which goes into the bucket: nobody is there to be told."""
        try:
            with self._run.log.open("ab") as log:
                log.write(("airflow-tpu: " + text + "\n").encode("utf-8", "backslashreplace"))
        except OSError:
            print(text, flush=True)


def guard(run: RunDir) -> int:
    """Guard the TPU of an attempt until it is given back or somebody else is in charge."""
    Guard(run, run.read(protocol.JOB_FILE) or {}).watch()
    return 0
