"""The supervisor: parent of the user's command, alive as long as it, independent of every SSH connection.

It adopts the processes that the command leaves behind (``PR_SET_CHILD_SUBREAPER``, prctl(2)), so that none of them
outlives the result, and it writes the result into bytes that it reserved before the command could fill the disk.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from typing import Any, Iterator, NamedTuple

import protocol

from machine import processes
from machine.run_dir import ReservedFile, RunDir
from supervisor.mirror_process import MirrorProcess, runner_command
from supervisor.process_setup import drain, environment, expanded, wake_on_signals
from supervisor.stall import StallDetector
from supervisor.stop_policy import StopPolicy

_LEFTOVER_SECS = 2.0  # for leftovers, from TERM to KILL
_LAST_PUSH_SECS = 2.0  # for the last checkpoint when the grace is used up
_LAST_PUSH_TRIES = 3  # when the mirror itself is killed, of a full memory say
_UNKILLABLE_SECS = 5.0  # a process stuck in the kernel must not keep the result from being recorded


class StepEnd(NamedTuple):
    """Exit status or signal of a step: exactly one of them is set."""

    exit_code: int | None
    signal: int | None


class Supervisor:
    """Runs the steps of one job and records how they ended.

    :param run: the attempt.
    :param job: the client's job: argv, setup, environment, working_dir, grace_secs, deadline, stall_secs, artifacts.
    """

    def __init__(self, run: RunDir, job: dict[str, Any]) -> None:
        self._run = run
        self._job = job
        self._stop_policy = StopPolicy(run, job)
        self._stall = StallDetector(float(job.get("stall_secs") or 0.0), run.log, (run.output, run.checkpoints))
        self._log = os.open(str(run.log), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._result = ReservedFile(run.path / protocol.EXIT_FILE, 4096 + 2 * len(json.dumps(job.get("artifacts", []))))
        self._mirror = MirrorProcess(run, job, self._log)
        self._wakeup = wake_on_signals(self._stop_policy.request)
        self._step: int | None = None
        self._status: int | None = None

    def run(self, ready: int) -> None:
        """Run the steps; the record of the first one is written to the pipe ``ready``."""
        started_at = time.time()
        step, end = self._run_steps(ready)
        self._stop_policy.apply_request(list)  # a shutdown signals the command and its supervisor at once
        document = {
            "exit_code": end.exit_code,
            "signal": end.signal,
            "signal_name": "" if end.signal is None else signal.Signals(end.signal).name,
            "step": step,
            "stopped": self._stop_policy.requested,
            "stop_command": self._stop_policy.by_command,
            "deadline": self._stop_policy.past_deadline,
            "stalled": self._stall.stalled,
            "stalled_secs": round(self._stall.seconds, 1),
            "leftovers_killed": self._end_leftovers(),
            "missing_artifacts": self._missing_artifacts(),
            "started_at": started_at,
            "ended_at": time.time(),
        }
        # The run has ended: its deadline may pass while the last checkpoint is uploaded.
        self._finish_mirror(trusted=end.signal is None)
        self._result.commit({**document, **self._mirror.result_fields(), "log_size": os.fstat(self._log).st_size})

    def _run_steps(self, ready: int) -> tuple[str, StepEnd]:
        for step, argv in self._steps():
            end = self._run_step(argv, ready)
            if step == protocol.RUN_STEP or end != StepEnd(0, None):
                break
            if self._stop_policy.stopping:
                return step, StepEnd(protocol.EXIT_STOPPED, None)
        return step, end

    def _steps(self) -> Iterator[tuple[str, list[str]]]:
        if self._mirror.enabled:
            yield protocol.RESTORE_STEP, runner_command("restore", self._run)
        self._mirror.ensure_running()
        if self._job.get("setup"):
            yield protocol.SETUP_STEP, self._job["setup"]
        yield protocol.RUN_STEP, self._job["argv"]

    def _run_step(self, argv: list[str], ready: int) -> StepEnd:
        self._record(None)
        reserved = ReservedFile(self._run.path / protocol.PID_FILE)  # the command may fill the disk at once
        variables = environment(self._run, self._job)
        try:
            process = subprocess.Popen(
                expanded(argv, variables),
                cwd=str(self._run.bundle / self._job.get("working_dir", "")),
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            self._log_line("cannot start %r: %s" % (argv[0], error))
            _notify_start(ready, self._record(None, reserved))
            absent = isinstance(error, FileNotFoundError)
            return StepEnd(protocol.EXIT_NOT_FOUND if absent else protocol.EXIT_NOT_EXECUTABLE, None)
        self._step, self._status = process.pid, None
        self._stall.restart()
        process.returncode = 0  # the loop below reaps it, not Popen
        _notify_start(ready, self._record(process.pid, reserved))
        return self._wait()

    def _wait(self) -> StepEnd:
        while True:
            self._reap()
            if self._status is not None:
                break
            if self._stall.check() or self._mirror.overtaken:
                self._stop_policy.stop(self._command_processes)
            self._stop_policy.apply(self._command_processes)
            if self._mirror.started:
                self._mirror.ensure_running()
            self._sleep(min(self._stop_policy.next_due(), self._stall.next_check()))
        if os.WIFSIGNALED(self._status):
            return StepEnd(None, os.WTERMSIG(self._status))
        return StepEnd(os.WEXITSTATUS(self._status), None)

    def _sleep(self, seconds: float) -> None:
        select.select([self._wakeup], [], [], max(seconds, 0.0))
        drain(self._wakeup)

    def _finish_mirror(self, trusted: bool) -> None:
        """Have the last checkpoint uploaded, by another mirror if one is killed meanwhile; say so if it is not safe."""
        for _ in range(_LAST_PUSH_TRIES):
            self._mirror.finish(trusted)
            self._wait_for_mirror()
            if not self._mirror.killed:
                break
        if self._mirror.unfinished:
            self._log_line("the run has ended before its last checkpoint was safe in the bucket")

    def _wait_for_mirror(self) -> None:
        """Wait as long as grace is left, and a moment if none is.

        A command that was not stopped has the time until its deadline while its checkpoint travels.
        """
        self._reap()
        end = self._last_push_end()
        while self._mirror.pid and time.monotonic() < end:
            self._sleep(min(end - time.monotonic(), self._stop_policy.next_due(), _LAST_PUSH_SECS))
            self._reap()
            self._stop_policy.apply(list)
            travels = not self._stop_policy.stopping and self._mirror.is_uploading
            end = self._last_push_end() if travels else min(end, self._last_push_end())
        self._kill_mirror()

    def _last_push_end(self) -> float:
        return time.monotonic() + max(self._stop_policy.grace_left(), _LAST_PUSH_SECS)

    def _kill_mirror(self) -> None:
        mirror = processes.read(self._mirror.pid)
        if self._mirror.pid and mirror is not None:
            processes.send(mirror, signal.SIGKILL)

    def _reap(self) -> None:
        """Reap every dead child, ours and adopted: a zombie would look alive for ever."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._step:
                self._status = status
            self._mirror.note_exit(pid, status)

    def _command_processes(self) -> list[processes.Process]:
        """Return all processes of the command; the mirror is not one of them."""
        self._reap()
        return [process for process in processes.descendants(os.getpid()) if process.pid != self._mirror.pid]

    def _end_leftovers(self) -> int:
        """End what the command left behind, because files must not change while they are copied; return how many."""
        left = self._command_processes()
        processes.terminate(left)
        if processes.wait_until_none(self._command_processes, _LEFTOVER_SECS):
            processes.kill(self._command_processes)
            processes.wait_until_none(self._command_processes, _UNKILLABLE_SECS)
        return len(left)

    def _record(self, pid: int | None, reserved: ReservedFile | None = None) -> dict[str, Any]:
        command, supervisor = processes.read(pid or 0), processes.read(os.getpid())
        document = {
            "pid": pid,
            "start_time": None if command is None else command.start_time,
            "supervisor_pid": os.getpid(),
            "supervisor_start_time": None if supervisor is None else supervisor.start_time,
            "boot_id": processes.boot_id(),
        }
        if reserved is None:
            self._run.write(protocol.PID_FILE, document)
        else:
            reserved.commit(document)
        return document

    def _log_line(self, text: str) -> None:
        with contextlib.suppress(OSError):  # a full disk must not keep the result from being recorded
            os.write(self._log, ("airflow-tpu: " + text + "\n").encode("utf-8", "backslashreplace"))

    def _missing_artifacts(self) -> list[str]:
        return [pattern for pattern in self._job.get("artifacts", []) if not any(self._run.output.glob(pattern))]


def _notify_start(ready: int, document: dict[str, Any]) -> None:
    """Tell the start command; if it has died with its connection, the run continues all the same."""
    try:
        os.write(ready, json.dumps(document).encode("ascii") + b"\n")
    except OSError:
        return
