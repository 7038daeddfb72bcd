# SPDX-License-Identifier: Apache-2.0
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
from machine.declared import Declared
from machine.run_dir import ReservedFile, RunDir
from supervisor import shell_setup
from supervisor.children import Children
from supervisor.last_push import LastPush
from supervisor.mirror_process import MirrorProcess, runner_command
from supervisor.process_setup import drain, environment, expanded, wake_on_signals
from supervisor.redaction import MaskedOutput
from supervisor.stall import StallDetector
from supervisor.stop_policy import StopPolicy
from supervisor.tpu_holder import find_holder


class StepEnd(NamedTuple):
    """Exit status or signal of a step: exactly one of them is set."""

    exit_code: int | None
    signal: int | None


class Supervisor:
    """Runs the steps of one job and records how they ended.

    :param run: the attempt.
    :param job: the client's job: argv, requirements, setup, environment, working_dir, grace_secs, deadline, stall_secs,
        artifacts.
    :param secrets: variables of the command that are on no disk: they are in memory only, and masked in the log.
    """

    def __init__(self, run: RunDir, job: dict[str, Any], secrets: dict[str, str]) -> None:
        self._run = run
        self._job = job
        self._stop_policy = StopPolicy(run, job)
        self._stall = StallDetector(float(job.get("stall_secs") or 0.0), run.log, (run.output, run.checkpoints))
        self._log = os.open(str(run.log), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._secrets = secrets
        self._output = MaskedOutput(self._log, secrets.values())
        self._result = ReservedFile(run.path / protocol.EXIT_FILE, 4096 + 2 * len(json.dumps(job.get("artifacts", []))))
        self._mirror = MirrorProcess(run, job, self._log)
        self._wakeup = wake_on_signals(self._stop_policy.request)
        self._children = Children(self._mirror)

    def run(self, ready: int) -> None:
        """Run the steps; the record of the first one is written to the pipe ``ready``."""
        started_at = time.time()
        step, end = self._run_steps(ready)
        self._stop_policy.apply_request(list)  # a shutdown signals the command and its supervisor at once
        leftovers = self._children.end_leftovers()
        self._output.close()
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
            "leftovers_killed": leftovers,
            "tpu_holder": "" if end == StepEnd(0, None) else find_holder(self._run.log),
            "missing_artifacts": Declared.of(self._job).missing(self._run, self._job),
            "started_at": started_at,
            "ended_at": time.time(),
        }
        # The run has ended: its deadline may pass while the last checkpoint is uploaded.
        push = LastPush(self._mirror, self._children, self._stop_policy, self._sleep)
        if not push.run(trusted=end.signal is None):
            self._log_line("the run has ended before its last checkpoint was safe in the bucket")
        self._result.commit({**document, **self._mirror.result_fields(), "log_size": os.fstat(self._log).st_size})

    def _run_steps(self, ready: int) -> tuple[str, StepEnd]:
        for step, argv in self._steps():
            end = self._run_step(step, argv, ready)
            if step == protocol.RUN_STEP or end != StepEnd(0, None):
                break
            if self._stop_policy.stopping:
                return step, StepEnd(protocol.EXIT_STOPPED, None)
        return step, end

    def _steps(self) -> Iterator[tuple[str, list[str]]]:
        if self._mirror.enabled:
            yield protocol.RESTORE_STEP, runner_command("restore", self._run)
        self._mirror.ensure_running()
        if self._job.get("requirements") or self._job.get("packages"):
            yield protocol.SETUP_STEP, runner_command("install", self._run)
        if self._job.get("setup"):
            yield protocol.SETUP_STEP, self._job["setup"]
        if self._job.get("framework"):
            yield protocol.SMOKE_STEP, runner_command("smoke", self._run)
        yield protocol.RUN_STEP, self._job["argv"]

    def _run_step(self, step: str, argv: list[str], ready: int) -> StepEnd:
        self._record(None)
        reserved = ReservedFile(self._run.path / protocol.PID_FILE)  # the command may fill the disk at once
        variables = environment(self._run, self._job)
        if step != protocol.RESTORE_STEP:
            variables.update(self._secrets)
        if step == protocol.RUN_STEP:
            variables.update(shell_setup.variables(self._run, variables))
        try:
            process = subprocess.Popen(
                expanded(argv, variables),
                cwd=str(self._run.bundle / self._job.get("working_dir", "")),
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=self._output.descriptor,
                stderr=self._output.descriptor,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            self._log_line("cannot start %r: %s" % (argv[0], error))
            _notify_start(ready, self._record(None, reserved))
            absent = isinstance(error, FileNotFoundError)
            return StepEnd(protocol.EXIT_NOT_FOUND if absent else protocol.EXIT_NOT_EXECUTABLE, None)
        self._children.watch(process.pid)
        self._stall.restart()
        process.returncode = 0  # the loop below reaps it, not Popen
        _notify_start(ready, self._record(process.pid, reserved))
        return self._wait()

    def _wait(self) -> StepEnd:
        while True:
            self._children.reap()
            status = self._children.status
            if status is not None:
                break
            if self._stall.check() or self._mirror.overtaken:
                self._stop_policy.stop(self._children.of_command)
            self._stop_policy.apply(self._children.of_command)
            if self._mirror.started:
                self._mirror.ensure_running()
            self._sleep(min(self._stop_policy.next_due(), self._stall.next_check()))
        if os.WIFSIGNALED(status):
            return StepEnd(None, os.WTERMSIG(status))
        return StepEnd(os.WEXITSTATUS(status), None)

    def _sleep(self, seconds: float) -> None:
        select.select([self._wakeup], [], [], max(seconds, 0.0))
        drain(self._wakeup)

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


def _notify_start(ready: int, document: dict[str, Any]) -> None:
    """Tell the start command; if it has died with its connection, the run continues all the same."""
    try:
        os.write(ready, json.dumps(document).encode("ascii") + b"\n")
    except OSError:
        return
