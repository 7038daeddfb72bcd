# SPDX-License-Identifier: Apache-2.0
"""What is to be run on a TPU VM, and the name under which it is found again."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from airflow_tpu import protocol
from airflow_tpu.core import json_form
from airflow_tpu.core.tpu.labels import slugify
from airflow_tpu.errors import ConfigError, Fault

if TYPE_CHECKING:
    from airflow_tpu.core.request.run_conf import RunConf

_RUN_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")  # as the runner demands: it becomes a directory
_OBJECT_PREFIX = re.compile(r"gs://[^/]+/[^/].*")
_RESOURCE = re.compile(r"projects/[^/]+/locations/[^/]+/(nodes|queuedResources)/[^/]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class RunRef:
    """Names one attempt on one worker.

    :param run_name: name of the run, equal for all its attempts.
    :param attempt: number of the attempt, from 1.
    """

    run_name: str
    attempt: int


@dataclass(frozen=True)
class JobSpec:
    """One attempt of a run: what is started and under which conditions.

    :param run_name: name of the run: lower-case letters, digits and hyphens.
    :param attempt: number of the attempt, from 1.
    :param argv: program and arguments; a relative program is looked up from ``working_dir``.
    :param environment: added to the login's environment; never shown, it may hold what must not be logged.
    :param working_dir: relative to the unpacked bundle.
    :param requirements: file in the bundle whose packages are installed first, in the step ``setup``; empty for none.
    :param packages: requirements beside those of the file, which are installed first.
    :param framework: what is tried before the command, with its version: ``jax``, ``tensorflow 2.18``. Empty: nothing.
    :param smoke_secs: seconds in which each part of that trial ends, else the run has failed; an import that works gets
        more.
    :param wheels_uri: ``gs://bucket/prefix`` below which wheels of installed packages are kept for later TPUs. Empty:
        nowhere.
    :param setup: run first, with the same log; if it fails, the run has failed in the step ``setup``.
    :param grace_secs: seconds between the request to stop and the kill.
    :param deadline: Unix time at which the worker stops the run by itself, None for never.
    :param artifacts: patterns of files in the output or the working directory; each must name a file when the run is
        done.
    :param checkpoints_uri: ``gs://bucket/prefix`` of the run, equal for all its attempts: there its checkpoints are
        mirrored while it runs, and a machine without any gets the newest from there. Empty: neither.
    :param mirror_secs: seconds between two looks at the checkpoints.
    :param stall_secs: seconds without a change of the log, the output and the checkpoints after which the run is
        stopped; 0 for never.
    :param own_resource: full name of the queued resource, or else the node, that the worker belongs to: the worker
        deletes it when the deadline has passed and Airflow is not heard of any more. Empty: it never does.
    :param artifacts_uri: ``gs://bucket/prefix`` for the output and the log, which it saves before. Empty: nowhere.
    :param code: digest of the source code of the run; empty: a resume does not compare it.
    :param refuse_changed_code: do not resume from a checkpoint that was saved with other code.
    :param soft_delete_secs: for how long the bucket keeps and bills removed checkpoints; 0: it does not, or unknown.
    :param abandon_secs: seconds after the deadline and after the last sign of Airflow that is.
    :raises ConfigError: with every fault at once.
    """

    run_name: str
    attempt: int
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    working_dir: str = ""
    requirements: str = ""
    packages: tuple[str, ...] = ()
    framework: str = ""
    wheels_uri: str = ""
    setup: tuple[str, ...] = ()
    grace_secs: float = protocol.GRACE_SECS
    deadline: float | None = None
    artifacts: tuple[str, ...] = ()
    checkpoints_uri: str = ""
    mirror_secs: float = protocol.MIRROR_SECS
    stall_secs: float = 0.0
    own_resource: str = ""
    artifacts_uri: str = ""
    code: str = ""
    refuse_changed_code: bool = False
    soft_delete_secs: float = 0.0
    abandon_secs: float = protocol.ABANDON_SECS
    smoke_secs: float = protocol.SMOKE_SECS

    def __post_init__(self) -> None:
        faults = [*self._name_faults(), *self._command_faults(), *self._time_faults(), *self._path_faults()]
        if faults:
            raise ConfigError(faults, f"job {self.run_name}")

    @property
    def ref(self) -> RunRef:
        """The name of this attempt."""
        return RunRef(self.run_name, self.attempt)

    def _name_faults(self) -> list[Fault]:
        faults = []
        if not _RUN_NAME.fullmatch(self.run_name):
            faults.append(Fault("run_name", self.run_name, "lower-case letters, digits and hyphens, 63 at most"))
        if self.attempt < 1:
            faults.append(Fault("attempt", self.attempt, "attempts count from 1"))
        return faults

    def _command_faults(self) -> list[Fault]:
        faults = []
        if not self.argv or not self.argv[0]:
            faults.append(Fault("argv", self.argv, "names no program"))
        if any("\0" in word for word in (*self.argv, *self.setup)):
            faults.append(Fault("argv", self.argv, "an argument cannot hold a NUL character"))
        for name, value in self.environment.items():
            if not _VARIABLE.fullmatch(name) or "\0" in value:
                faults.append(Fault("environment", name, "not a variable that can be set"))
        return faults

    def _time_faults(self) -> list[Fault]:
        faults = []
        if not 0 <= self.grace_secs < float("inf"):
            faults.append(Fault("grace_secs", self.grace_secs, "a number of seconds, 0 or more"))
        if self.deadline is not None and not 0 < self.deadline < float("inf"):
            faults.append(Fault("deadline", self.deadline, "a Unix time in seconds"))
        if not 0 <= self.stall_secs < float("inf"):
            faults.append(Fault("stall_secs", self.stall_secs, "a number of seconds, 0 or more"))
        for name in ("mirror_secs", "abandon_secs", "smoke_secs"):
            if not 0 < getattr(self, name) < float("inf"):
                faults.append(Fault(name, getattr(self, name), "a number of seconds, more than 0"))
        return faults

    def _path_faults(self) -> list[Fault]:
        paths = [("working_dir", self.working_dir), ("requirements", self.requirements)]
        paths += [("artifacts", pattern) for pattern in self.artifacts]
        faults = [Fault(name, path, "must stay below its directory") for name, path in paths if not _stays_below(path)]
        for name in ("checkpoints_uri", "artifacts_uri", "wheels_uri"):
            uri = getattr(self, name)
            if uri and not _OBJECT_PREFIX.fullmatch(uri):
                faults.append(Fault(name, uri, "gs://bucket/prefix"))
        if self.own_resource and not _RESOURCE.fullmatch(self.own_resource):
            faults.append(Fault("own_resource", self.own_resource, "the full name of a node or a queued resource"))
        return faults


def _stays_below(path: str) -> bool:
    parts = PurePosixPath(path)
    return not parts.is_absolute() and ".." not in parts.parts and "\0" not in path


NAME_ROOM = 17
"""Characters that the name of a session (45) leaves of the 63 of a directory on the TPU VM, without the hyphen."""

_DIGEST = 6

ASKED = (
    "script",
    "source",
    "source_conn_id",
    "command",
    "arguments",
    "requirements",
    "revision",
    "data_uri",
    "seed",
    "environment",
    "secrets",
    "artifacts_uri",
    "outputs",
    "model",
)
"""Fields of the form that say what is trained; the others say on which TPU, until when, and what is survived."""


@dataclass(frozen=True)
class LastAttempt:
    """The last start of a training in its session.

    :param number: of the attempt, 0 before the first.
    :param node_id: of the node it was started on.
    :param at: when it was started, None if unknown.
    :param first_at: when the first attempt of the training was.
    :param uri: where its artifacts go.
    :param asked: digest of what was asked for.
    :param code: digest of its source code.
    :param seconds: how long it ran, 0 as long as that is not known.
    :param artifact_bytes: bytes that it wrote to the bucket.
    """

    number: int = 0
    node_id: str = ""
    at: dt.datetime | None = None
    first_at: dt.datetime | None = None
    uri: str = ""
    asked: str = ""
    code: str = ""
    seconds: float = 0.0
    artifact_bytes: int = 0


NEVER_STARTED = LastAttempt()


def training_of(task_id: str, session: str) -> str:
    """Name of a training in its session: the id of its task without the session's prefix.

    :param task_id: of the task that trains.
    :param session: name of the session.
    """
    return task_id.removeprefix(f"{session}.") if session else task_id


def name_on_vm(session: str, training: str) -> str:
    """Directory of a training's attempts on the TPU VM: no two trainings share one.

    :param session: name of the run record, at most 45 characters.
    :param training: name of the training, empty for that of a session without a task.
    """
    slug = slugify(training, NAME_ROOM) if training else ""
    if slug != training:
        digest = hashlib.sha256(training.encode()).hexdigest()[:_DIGEST]
        slug = f"{slug[: NAME_ROOM - _DIGEST - 1].rstrip('-')}-{digest}"
    return f"{session}-{slug}" if slug else session


def folder_of(session: str, training: str) -> str:
    """Path of a training's attempts and checkpoints below the bucket's prefix: the id of its task, in its session."""
    return f"{session}/{training}" if training else session


def asked_digest(conf: RunConf) -> str:
    """Digest of what is trained: while it is the same, an attempt that is there already is the one that is wanted."""
    asked = {name: json_form.to_json(getattr(conf, name)) for name in ASKED}
    return hashlib.sha256(json_form.encode(asked)).hexdigest()[:32]
