# SPDX-License-Identifier: Apache-2.0
"""The startup script of a TPU VM: makes sure that a guard watches over the TPU, from the first boot on.

It travels in the node's metadata, so that it is there before any connection and after each reboot; Google's guest agent
runs it as root. Until a run has arrived it guards the TPU itself, by the deadline and by the time that a run may take
to arrive. From then on the run's own guard does, which also saves the output; where that is missing, since the machine
was rebooted, it is started again.
"""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import syslog
import time
from pathlib import Path
from typing import Any, Iterator, NamedTuple

import protocol

from gcs.requests import RequestFailed
from guard import own_node

_LOOK_SECS = 60.0
_DELETE_SECS = 120.0  # from the answer to the delete to the end of this machine
_STARTS = 3  # of a guard that ends; then this one does its work
_HOMES = ("~", "/root", "/home/*")  # where the login of a TPU VM has its home


class ArrivedRun(NamedTuple):
    """An attempt of a run on this machine.

    :param home: of the login that started it.
    :param path: its directory.
    :param job: what was asked for.
    """

    home: Path
    path: Path
    job: dict[str, Any]

    @property
    def options(self) -> list[str]:
        """Its name on the runner's command line."""
        return ["--run", self.path.parent.name, "--attempt", self.path.name.rpartition("-")[2]]

    def ends_at(self, deadline: float) -> float:
        """Return the Unix time of its deadline or of Airflow's last contact, whichever is later.

        :param deadline: for a job that has none.
        """
        extended = _document(self.path / protocol.DEADLINE_FILE).get("deadline") or 0.0
        return max(float(self.job.get("deadline") or deadline), float(extended), _changed(_contact(self.path)))


class BootGuard:
    """Guards the TPU of this machine.

    :param resource: full name of the queued resource or the node.
    :param deadline: Unix time of the end of the run that asked for it.
    :param arrives_by: Unix time by which a run must have arrived.
    :param homes: patterns of the directories in which to look for runs.
    """

    def __init__(self, resource: str, deadline: float, arrives_by: float, homes: tuple[str, ...] = _HOMES) -> None:
        self._resource = resource
        self._deadline = deadline
        self._arrives_by = arrives_by
        self._homes = homes
        self._child: subprocess.Popen[bytes] | None = None
        self._starts = 0

    def run(self) -> None:
        """Return when this machine is going down."""
        while True:
            wait = self.left(time.time())
            if wait <= 0 and self._give_back():
                return
            time.sleep(min(max(wait, 1.0), _LOOK_SECS))

    def left(self, now: float) -> float:
        """Return the seconds until the TPU is given back from here; a run's guard is started if it is missing.

        :param now: Unix time.
        """
        attempt = self.newest()
        if attempt is None:
            return min(self._deadline, self._arrives_by) - now  # there is no output to save before
        if now < _changed(attempt.path / protocol.JOB_FILE) + _LOOK_SECS or self._is_guarded(attempt):
            return _LOOK_SECS
        return attempt.ends_at(self._deadline) + protocol.ABANDON_SECS - now

    def newest(self) -> ArrivedRun | None:
        """Return the last attempt that was started here, None before the first."""
        found = [(_changed(path), home, path.parent) for home, path in self._jobs()]
        if not found:
            return None
        _, home, path = max(found)
        return ArrivedRun(home, path, _document(path / protocol.JOB_FILE))

    def _jobs(self) -> Iterator[tuple[Path, Path]]:
        for pattern in self._homes:
            place = Path(os.path.expanduser(pattern))
            for home in place.parent.glob(place.name):
                root = home / protocol.ROOT_DIR / protocol.RUNS_DIR
                yield from ((home, path) for path in root.glob("*/attempt-*/" + protocol.JOB_FILE))

    def _is_guarded(self, attempt: ArrivedRun) -> bool:
        if self._child is not None:
            self._child.poll()  # a child that has ended is no process any more
        if any(_is_guard(command, attempt) for command in _commands()):
            return True
        if self._starts >= _STARTS or not attempt.job.get("own_resource"):
            return False
        self._starts += 1
        self._child = _start_guard(attempt)
        return self._child is not None

    def _give_back(self) -> bool:
        """Delete the TPU, or shut this machine down; return whether it is going down."""
        _say("no run has arrived in time, or the deadline has passed: deleting %s" % self._resource)
        try:
            own_node.delete(self._resource)
            time.sleep(_DELETE_SECS)
            reason = "the delete was accepted, but this machine is still here"
        except (RequestFailed, ValueError) as error:
            reason = str(error)
        _say("the TPU could not be deleted from here (%s): shutting the machine down" % reason)
        reason = own_node.shut_down()
        if reason:
            _say("the machine could not be shut down either (%s); trying both again later" % reason)
        return not reason


def _start_guard(attempt: ArrivedRun) -> subprocess.Popen[bytes] | None:
    """Start the guard of a run as the login that started the run; None if that is not possible."""
    runners = (attempt.home / protocol.ROOT_DIR / protocol.RUNNER_DIR).glob("*/runner.py")
    runner = max(runners, key=_changed, default=None)
    if runner is None:
        return None
    owner, command = os.stat(str(attempt.home)), [sys.executable, "-E", "-X", "utf8", str(runner), "guard"]

    def become_owner() -> None:
        if os.geteuid() == 0 and owner.st_uid != 0:
            os.initgroups(pwd.getpwuid(owner.st_uid).pw_name, owner.st_gid)  # of those who may shut down
            os.setgid(owner.st_gid)
            os.setuid(owner.st_uid)

    _say("the guard of %s is missing, as after a reboot: starting it" % attempt.path)
    try:
        return subprocess.Popen(
            [*command, *attempt.options],
            env={**os.environ, "HOME": str(attempt.home)},
            preexec_fn=become_owner,
            start_new_session=True,
        )
    except (OSError, KeyError, subprocess.SubprocessError) as error:
        _say("it could not be started: %s" % error)
        return None


def _is_guard(command: list[str], attempt: ArrivedRun) -> bool:
    options = attempt.options
    ours = command[-len(options) - 1 :] == ["guard", *options]
    return ours and any(word.startswith(str(attempt.home)) for word in command)


def _commands() -> Iterator[list[str]]:
    """Yield the command line of every process that can be read."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes().decode("utf-8", "replace").rstrip("\0").split("\0")
        except OSError:
            continue


def _contact(attempt: Path) -> Path:
    return attempt / protocol.CONTACT_FILE


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _say(text: str) -> None:
    syslog.syslog("airflow-tpu: " + text)


def _detach() -> bool:
    """Leave the guest agent, which waits for the end of the script and of its output; return True in what stays."""
    if os.fork():
        return False
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    return True


def main(resource: str, deadline: float, arrival_secs: float) -> None:
    """Guard the TPU of this machine in the background.

    :param resource: full name of the queued resource or the node.
    :param deadline: Unix time of the end of the run that asked for it.
    :param arrival_secs: seconds from the boot until a run must have arrived.
    """
    if _detach():
        BootGuard(resource, deadline, time.time() + arrival_secs).run()
