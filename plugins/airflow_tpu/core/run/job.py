"""What is to be run on a TPU VM, and the name under which it is found again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from airflow_tpu import protocol
from airflow_tpu.errors import ConfigError, Fault

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
        for name in ("mirror_secs", "abandon_secs"):
            if not 0 < getattr(self, name) < float("inf"):
                faults.append(Fault(name, getattr(self, name), "a number of seconds, more than 0"))
        return faults

    def _path_faults(self) -> list[Fault]:
        paths = [("working_dir", self.working_dir), ("requirements", self.requirements)]
        paths += [("artifacts", pattern) for pattern in self.artifacts]
        faults = [Fault(name, path, "must stay below its directory") for name, path in paths if not _stays_below(path)]
        for name in ("checkpoints_uri", "artifacts_uri"):
            uri = getattr(self, name)
            if uri and not _OBJECT_PREFIX.fullmatch(uri):
                faults.append(Fault(name, uri, "gs://bucket/prefix"))
        if self.own_resource and not _RESOURCE.fullmatch(self.own_resource):
            faults.append(Fault("own_resource", self.own_resource, "the full name of a node or a queued resource"))
        return faults


def _stays_below(path: str) -> bool:
    parts = PurePosixPath(path)
    return not parts.is_absolute() and ".." not in parts.parts and "\0" not in path
