# SPDX-License-Identifier: Apache-2.0
"""The start command: unpacks the bundle, creates the attempt, starts the supervisor."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
import traceback
from pathlib import Path
from typing import Any, BinaryIO

import protocol

from commands.stop import stop_earlier
from machine import processes
from machine.run_dir import RunDir
from supervisor import shell_setup, start_guard
from supervisor.process_setup import adopt_orphans
from supervisor.supervise import Supervisor

# What is written while the command runs, which may have filled the disk by then.
_REWRITTEN = (
    protocol.MIRROR_FILE,
    protocol.DELIVERED_FILE,
    protocol.STOP_FILE,
    protocol.STOP_REQUEST_FILE,
    protocol.DEADLINE_FILE,
)


class RequestRefused(ValueError):
    """A request that is not carried out.

    :param reason: one word for programs.
    :param message: a sentence for people.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def start(stream: BinaryIO) -> bytes:
    """Start the job that arrives on ``stream``, unless it has been started; return the answer.

    What earlier attempts of the run have left running is stopped first.
    """
    job, archive, secrets = _receive(stream)
    try:
        run = RunDir(job.get("run_name", ""), job.get("attempt", 0))
    except ValueError as error:
        raise RequestRefused("bad-job", str(error)) from error
    run.run_path.mkdir(mode=0o700, parents=True, exist_ok=True)
    earlier = [] if run.path.exists() else stop_earlier(run, float(job.get("grace_secs", protocol.GRACE_SECS)))
    staging = Path(tempfile.mkdtemp(prefix=".staging-", dir=str(run.run_path)))
    try:
        unpack(archive, staging)
        try:
            run.path.mkdir(mode=0o700)  # the mutex: of many starts, one gets past this line
        except FileExistsError:
            return _answer(protocol.EXISTS, run, run.read(protocol.PID_FILE) or {})
        if earlier:
            _log_line(run, "stopped what attempt %s had left running here" % ", ".join(map(str, earlier)))
        return _answer(protocol.STARTED, run, _start_attempt(run, job, staging, secrets))
    finally:
        shutil.rmtree(str(staging), ignore_errors=True)


def _log_line(run: RunDir, text: str) -> None:
    with run.log.open("ab") as log:
        os.chmod(str(run.log), 0o600)
        log.write(("airflow-tpu: %s\n" % text).encode("ascii"))


def _answer(kind: str, run: RunDir, pid: dict[str, Any]) -> bytes:
    fields = {name: pid.get(name) for name in ("pid", "start_time", "supervisor_pid", "boot_id")}
    return protocol.encode(kind, run=run.run, attempt=run.attempt, **fields)


def _receive(stream: BinaryIO) -> tuple[dict[str, Any], bytes, dict[str, str]]:
    """Read the whole request before anything is written: a cut connection leaves no trace."""
    header = protocol.decode(stream.readline(protocol.HEADER_LIMIT))
    bundle, job = header.get("bundle"), header.get("job")
    if header["type"] != protocol.START or not isinstance(bundle, dict) or not isinstance(job, dict):
        raise RequestRefused("bad-request", "expected a start message with a job and a bundle")
    if not job.get("argv"):
        raise RequestRefused("bad-job", "argv is empty")
    archive = stream.read(int(bundle["length"]))
    if hashlib.sha256(archive).hexdigest() != bundle["sha256"]:
        raise RequestRefused("damaged", "%d of %d bytes arrived, or they differ" % (len(archive), bundle["length"]))
    return job, archive, _secrets(stream, header.get("secrets"))


def _secrets(stream: BinaryIO, described: object) -> dict[str, str]:
    """Read what only the command may find: raw bytes, since an error shows the beginning of a message."""
    if not isinstance(described, dict):
        return {}
    content = stream.read(int(described["length"]))
    if len(content) != described["length"]:
        raise RequestRefused("damaged", "the secrets did not arrive whole")
    found: dict[str, str] = json.loads(content.decode("utf-8"))
    return found


def unpack(archive: bytes, target: Path) -> None:
    """Unpack regular files and directories below ``target``; refuse anything else, links first of all."""
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
        for member in tar:
            parts = Path(member.name).parts
            if member.name.startswith("/") or ".." in parts or not (member.isfile() or member.isdir()):
                raise RequestRefused("bad-bundle", "refused member %r" % member.name)
            path = target.joinpath(*parts)
            if member.isdir():
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
                continue
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            source = tar.extractfile(member)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with os.fdopen(os.open(str(path), flags, 0o700 if member.mode & 0o100 else 0o600), "wb") as file:
                shutil.copyfileobj(source or io.BytesIO(), file)


def _start_attempt(run: RunDir, job: dict[str, Any], staging: Path, secrets: dict[str, str]) -> dict[str, Any]:
    """Fill the attempt's directory and start the supervisor; remove the directory if that fails."""
    try:
        os.rename(str(staging), str(run.bundle))
        run.output.mkdir(mode=0o700)
        run.checkpoints.mkdir(mode=0o700, exist_ok=True)
        (run.path / protocol.CONTACT_FILE).touch()
        run.write(protocol.JOB_FILE, job)
        run.reserve(*_REWRITTEN)
        shell_setup.write(run)
        if start_guard.is_needed(job):
            # Before the run: a connection that is cut in between must not leave the TPU unguarded.
            start_guard.launch(run)
        return _launch(run, job, secrets)
    except BaseException:
        shutil.rmtree(str(run.path), ignore_errors=True)
        raise


def _launch(run: RunDir, job: dict[str, Any], secrets: dict[str, str]) -> dict[str, Any]:
    """Fork twice, so that init becomes the supervisor's parent; wait for its first record."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            _supervise(run, job, secrets, writable)
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writable)
    with os.fdopen(readable, "rb") as pipe:
        line = pipe.readline()
    if not line:
        raise RequestRefused("supervisor-failed", _supervisor_error(run))
    document: dict[str, Any] = json.loads(line.decode("ascii"))
    return document


def _supervise(run: RunDir, job: dict[str, Any], secrets: dict[str, str], ready: int) -> None:
    try:
        _detach_streams(run)
        adopt_orphans()
        Supervisor(run, job, secrets).run(ready)
    except BaseException:  # noqa: BLE001 - there is no caller; the traceback is all that can be left
        traceback.print_exc()
        processes.kill(lambda: processes.descendants(os.getpid()))
    finally:
        os._exit(0)


def _detach_streams(run: RunDir) -> None:
    """Close the SSH session's three streams: the session would wait for them, and they would end with it."""
    nothing = os.open(os.devnull, os.O_RDWR)
    complaints = os.open(str(run.path / "supervisor.err"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for descriptor, target in ((nothing, 0), (nothing, 1), (complaints, 2)):
        os.dup2(descriptor, target)


def _supervisor_error(run: RunDir) -> str:
    try:
        return (run.path / "supervisor.err").read_text(errors="replace")[
            -2000:
        ] or "the supervisor ended without an error message"
    except OSError as error:
        return str(error)
