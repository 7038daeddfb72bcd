# SPDX-License-Identifier: Apache-2.0
"""The supervisor's side of the mirror: starts it, tells it when the command has ended, reads its state."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import protocol

from machine.run_dir import RunDir

_AGAIN_SECS = 30.0  # after the mirror itself has died, of a full memory say
_RUNNER = Path(__file__).resolve().parents[1] / "runner.py"


def runner_command(name: str, run: RunDir) -> list[str]:
    """Return the command line of a command of the runner, immune to Python variables of the user's environment."""
    options = ["--run", run.run, "--attempt", str(run.attempt)]
    return [sys.executable, "-E", "-X", "utf8", str(_RUNNER), name, *options]


class MirrorProcess:
    """The mirror of one attempt; in a job without ``checkpoints_uri`` every method does nothing.

    :param run: the attempt.
    :param job: has ``checkpoints_uri``.
    :param log: descriptor of the run's log.
    """

    def __init__(self, run: RunDir, job: dict[str, Any], log: int) -> None:
        self.enabled = bool(job.get("checkpoints_uri"))
        self.overtaken = False  # another attempt has taken the run over
        self.pid = 0  # 0 while it does not run
        self._run = run
        self._log = log
        self._pipe = -1
        self._started_at: float | None = None
        self._status: int | None = None

    @property
    def started(self) -> bool:
        """Whether it has ever been started, which happens after the restore."""
        return self._started_at is not None

    @property
    def killed(self) -> bool:
        """Whether a signal has ended it: it has not decided so itself, and another one may finish its work."""
        return not self.pid and self._status is not None and os.WIFSIGNALED(self._status)

    @property
    def unfinished(self) -> bool:
        """Whether it was started and has not ended by saying that everything complete is in the bucket."""
        return self.started and not self.overtaken and (bool(self.pid) or self._status != 0)

    @property
    def is_well(self) -> bool:
        """Whether it has reported no trouble with the bucket: it starts, uploads or ends, on a slow machine too."""
        return not (self._run.read(protocol.MIRROR_FILE) or {}).get("error")

    def ensure_running(self) -> None:
        """Start the mirror, or restart it if it died some time ago."""
        now = time.monotonic()
        if not self.enabled or self.overtaken or self.pid:
            return
        if self._started_at is not None and now - self._started_at < _AGAIN_SECS:
            return
        self._started_at = now
        self._start()

    def _start(self) -> None:
        """Start it with a pipe on standard input: it ends by itself when the supervisor's end is closed."""
        readable, writable = os.pipe()
        try:
            process = subprocess.Popen(runner_command("mirror", self._run), stdin=readable, stdout=self._log)
        except OSError:
            os.close(writable)
            return
        finally:
            os.close(readable)
        process.returncode = 0  # the supervisor reaps it, not Popen
        self._pipe, self.pid, self._status = writable, process.pid, None

    def note_exit(self, pid: int, status: int) -> None:
        """Record the end of a child, which may have been the mirror."""
        if pid == self.pid:
            self.pid, self._status = 0, status
            self.overtaken = os.WIFEXITED(status) and os.WEXITSTATUS(status) == protocol.EXIT_OVERTAKEN
            os.close(self._pipe)

    def finish(self, trusted: bool) -> None:
        """Have it upload what is there now and end.

        :param trusted: False if the command was killed, perhaps while it wrote.
        """
        if not self.started or self.overtaken:
            return
        if not self.pid:
            self._start()
        try:
            os.write(self._pipe, (protocol.FINISH if trusted else protocol.FINISH_KILLED) + b"\n")
        except OSError:
            return  # it has just died; its exit status says so

    def result_fields(self) -> dict[str, Any]:
        """Return the fields of the run's result that concern checkpoints; all None without ``checkpoints_uri``."""
        fields: dict[str, Any] = dict.fromkeys(protocol.CHECKPOINT_FIELDS)
        fields["overtaken"] = self.overtaken
        if self.enabled:
            status = self._run.read(protocol.MIRROR_FILE) or {}
            fields["overtaken"] = self.overtaken or status.get("fenced", False)
            restored = self._run.read(protocol.RESTORED_FILE) or {}
            fields["checkpoint_durable"] = self._status == 0 and status.get("last_at") is not None
            fields["last_durable_step"] = status.get("last_step")
            fields["mirror_error"] = status.get("error", "")
            fields.update({"resumed_" + name: restored.get(name) for name in ("step", "attempt", "saved_at")})
        return fields
