# SPDX-License-Identifier: Apache-2.0
"""The protocol between Airflow and the runner: shipped verbatim to the TPU VM, beside the runner.

Standard library only and Python 3.8 syntax, because the oldest TPU VM image brings no more.

A message is one line of JSON in ASCII with the protocol's version and its kind; one with a ``length`` is followed by
exactly so many raw bytes. What each kind carries:

=========== ============================================================================================
start       client: ``job`` (an object), ``bundle`` (``length``, ``sha256``), ``secrets`` (``length``, or absent);
            the tar follows as raw bytes, then the secrets: a JSON object of variables
started     ``run``, ``attempt``, ``pid``, ``start_time``, ``boot_id``, ``supervisor_pid``
exists      the same, as far as known: another start of this attempt came first
log         ``offset``, ``length``, then the bytes
heartbeat   ``size`` of the log, ``progress`` (what the script wrote to progress.json, or null), ``mirror`` (null, or
            ``last_step``, ``last_name``, ``last_at``, ``pending``, ``error``, ``fenced``: which checkpoint is safe)
finished    ``result``: see :data:`RESULT_FIELDS`
gone        ``reason`` (one of :data:`GONE_REASONS`), ``detail``: there will be no result
status      ``state`` (absent, running, finished, gone), ``size``, ``delivered``, ``progress``, ``result``, ``reason``,
            ``deadline`` (Unix seconds, or null)
stopped     ``state``, ``result``, ``killed`` (how many processes needed SIGKILL), ``survivors`` (their pids)
uploaded    ``done``, ``total`` files of a push, ``path`` and ``size`` of the last one; with an empty path a heartbeat
pushed      ``uri``, ``length``, then the manifest as it is in the bucket: the push is over
extended    ``deadline``: the one that counts now, Unix seconds, or null
error       ``reason``, ``message``: the request was not understood or could not be carried out
ack         client, while following: the log up to ``offset`` has been stored; also the answer to a heartbeat
=========== ============================================================================================
"""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from typing import Any

VERSION = 1
FILES_VERSION = 1  # of the JSON files below an attempt's directory

ROOT_DIR = ".airflow-tpu"  # below the login's home
RUNS_DIR = "runs"
RUNNER_DIR = "runner"

VENV_DIR = "venv"  # of a run, beside its attempts
BUNDLE_DIR = "bundle"
OUTPUT_DIR = "output"
WORKING_DIR = "working-dir"  # in the bucket: what the command has left beside its script
CHECKPOINT_DIR = "checkpoints"  # of the run, so that the next attempt on the same machine finds it
JOB_FILE = "job.json"
PID_FILE = "pid.json"
EXIT_FILE = "exit.json"
LOG_FILE = "log"
STOP_FILE = "stop"
STOP_REQUEST_FILE = "stop-request.json"
DELIVERED_FILE = "delivered.json"
MIRROR_FILE = "mirror.json"  # which checkpoint is safe in the bucket
RESTORED_FILE = "restored.json"  # which checkpoint came from there
CODE_FILE = "code.json"  # of the run: which code the last attempt on this machine had
CONTACT_FILE = "contact"  # its modification time is that of the last contact with Airflow
DEADLINE_FILE = "deadline.json"  # a later deadline than the job's
PROGRESS_FILE = "progress.json"  # inside the output directory
MANIFEST_FILE = "manifest.json"
LOG_OBJECT = "log.txt"  # beside the manifest in the bucket; a browser shows it
ENVIRONMENT_FILE = "environment.txt"  # of an attempt, and beside the manifest: every package that its Python finds

# Marks every process of an attempt, so that they are found even when their supervisor is dead.
MARKER = "AIRFLOW_TPU_ATTEMPT_DIR"

START = "start"
STARTED = "started"
EXISTS = "exists"
LOG = "log"
HEARTBEAT = "heartbeat"
FINISHED = "finished"
GONE = "gone"
STATUS = "status"
STOPPED = "stopped"
UPLOADED = "uploaded"
PUSHED = "pushed"
EXTENDED = "extended"
ERROR = "error"
ACK = "ack"

REBOOTED = "rebooted"
SUPERVISOR_DIED = "supervisor-died"
NO_PID = "no-pid"
GONE_REASONS = (REBOOTED, SUPERVISOR_DIED, NO_PID)

RESTORE_STEP = "restore"  # checkpoints from the bucket
SETUP_STEP = "setup"  # requirements
SMOKE_STEP = "smoke"  # framework, device and bucket, tried before the script
RUN_STEP = "run"

# The supervisor's line to the mirror when the command has ended.
FINISH = b"finish"
FINISH_KILLED = b"finish killed"

# A checkpoint below the run's prefix: attempt, order (the step, if known), name. Its manifest is written last.
CHECKPOINT_FOLDER = r"attempt-(\d+)/(\d{12,})\.([^/]+)"
CHECKPOINT_MANIFEST = "MANIFEST.json"

# Null in a job without checkpoints_uri. last_durable_step is also null if the script does not report steps.
CHECKPOINT_FIELDS = (
    "checkpoint_durable",
    "last_durable_step",
    "mirror_error",
    "resumed_step",
    "resumed_attempt",
    "resumed_saved_at",
)

# exit_code and signal: exactly one of them is set. step: restore, setup, smoke or run. Times are Unix seconds.
RESULT_FIELDS = (
    "exit_code",
    "signal",
    "signal_name",
    "step",
    "log_size",
    "stopped",
    "deadline",
    "overtaken",
    "stalled",
    "stalled_secs",
    "leftovers_killed",
    "tpu_holder",
    "missing_artifacts",
    "started_at",
    "ended_at",
    *CHECKPOINT_FIELDS,
)

# ``tpu_holder`` of a result: the TPU was held by another process of the command itself.
OWN_PROCESS = "own"

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_BAD_CONFIG = 64
EXIT_BAD_DATA = 65
EXIT_RESUME_REFUSED = 66
EXIT_NO_ACCELERATOR = 69
EXIT_DIVERGED = 70
EXIT_STORAGE = 74
EXIT_STOPPED = 75
EXIT_STOPPED_LOSING_WORK = 76
EXIT_NO_ACCESS = 77  # EX_NOPERM of sysexits.h: only our own restore ends with it
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127
FINAL_EXITS = frozenset((EXIT_BAD_CONFIG, EXIT_BAD_DATA, EXIT_RESUME_REFUSED, EXIT_DIVERGED))
"""With these a script says that another try would end alike."""
EXIT_OVERTAKEN = 3  # of the mirror, to its supervisor

# From the request to stop (SIGTERM and the stop file) until the kill; about what a preempted machine gets, but Google
# promises nothing for TPU VMs.
GRACE_SECS = 30.0
MIRROR_SECS = 5.0  # between two looks of the mirror at the checkpoints
SMOKE_SECS = 25.0  # for one part of the smoke step: a cold import takes some 20 s, a TPU as long
ABANDON_SECS = 600.0  # from the deadline and the last contact with Airflow until a machine deletes its TPU

CHUNK_BYTES = 256 * 1024  # most log bytes of one message
COALESCE_SECS = 0.5  # how long fewer bytes may wait for more
HEARTBEAT_SECS = 2.0
HEADER_LIMIT = 1024 * 1024  # bytes of one message line

# Files that leave neither Airflow's machine nor the TPU VM: keys and passwords, by name (in lower case) or content.
SECRET_NAMES = (
    ".env", ".env.*", ".netrc", "_netrc", "netrc", "*.pem", "*.key", "*.p8", "*.p12", "*.pfx", "*.pkcs12", "*.ppk",
    "*.jks", "*.keystore", "*.kdbx", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "kaggle.json",
)  # fmt: skip
SECRET_SIZE = 64 * 1024  # bytes; keys are small, so a bigger file is known by its name only
_SECRET_TEXT = re.compile(
    rb"-----BEGIN [A-Z ]*PRIVATE KEY( BLOCK)?-----|PuTTY-User-Key-File"
    rb"|\"type\"\s*:\s*\"((impersonated_|gdch_)?service_account|(external_account_)?authorized_user)\""
    rb"|\"(client_secret|refresh_token|private_key)\"\s*:\s*\""
    rb"|\baws_secret_access_key\s*=\s*\S"
    # Nothing but a token of a service: settings that hold one among others travel, for a script without them fails.
    rb"|\A\s*(hf_\w{20,}|gh[opsu]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|sk-[\w-]{20,}|ya29\.[\w.-]{20,}"
    rb"|xox[abp]-[\w-]{20,}|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]+)\s*\Z"
)


class ProtocolError(ValueError):
    """A line is no message of this protocol.

    :param message: what is wrong with it, with the beginning of the line.
    """


class OtherVersion(ProtocolError):
    """A line is a message of another version of this protocol."""


def encode(kind: str, **fields: Any) -> bytes:
    """Return one message as a line. NaN is refused: it is not JSON, and the other end would stumble over it."""
    message = {"v": VERSION, "type": kind}
    message.update(fields)
    return json.dumps(message, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """Return the message of a line.

    :raises ProtocolError: if it is not one, or one of another version.
    """
    shown = repr(bytes(line[:200]))
    try:
        message = json.loads(line.decode("utf-8"))
    except ValueError as error:
        raise ProtocolError("not a protocol message: " + shown) from error
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise ProtocolError("not a protocol message: " + shown)
    if message.get("v") != VERSION:
        raise OtherVersion("protocol version %r, this end speaks %d: %s" % (message.get("v"), VERSION, shown))
    return message


def is_secret_name(name: str) -> bool:
    """Return whether a file is a key or a password file by its name alone, whatever the case of its letters."""
    lower = name.lower()
    if lower.startswith("id_") and "." not in lower:  # ssh-keygen -f id_work
        return True
    return any(fnmatchcase(lower, pattern) for pattern in SECRET_NAMES)


def is_secret_text(content: bytes) -> bool:
    """Return whether the content of a small file is a private key, or the credentials of a Google account."""
    return _SECRET_TEXT.search(content) is not None
