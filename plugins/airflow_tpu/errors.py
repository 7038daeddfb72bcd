# SPDX-License-Identifier: Apache-2.0
"""Every error of the package, and whether a retry helps; ``docs/errors.md`` is written from these classes.

The tree is the retry policy: :mod:`airflow_tpu.retry` builds Airflow's rules from the marks ``retry`` and ``budget``,
so a new leaf decides for itself. Its branches: what a person has written (ConfigError, GrantError), the API
(CloudError, TPULost), the way to the TPU VM and what is on it (RemoteError), results and records.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar


class Retry(enum.Enum):
    """Whether trying again helps, and when."""

    NEVER = "never"  # fails the task
    AT_ONCE = "at once"  # replaces what is lost, or resumes: no pause would help
    SOON = "soon"  # looks or re-attaches after a short pause, in which the cause may pass
    LATER = "later"  # waits first


class Budget(enum.Enum):
    """Which budget a retry draws on."""

    CODE = "code"  # no retries by default: a bug does not get better on another TPU
    INFRASTRUCTURE = "infrastructure"  # max_preemptions of the form


class TPUError(Exception):
    """Root of the tree.

    :param message: what happened, to which resource, and what to do next.
    :param consequence: what it means for the TPU and its cost, of :mod:`airflow_tpu.consequences`; empty until stated.
    """

    retry: ClassVar[Retry] = Retry.NEVER
    budget: ClassVar[Budget] = Budget.CODE

    def __init__(self, message: str, *, consequence: str = "") -> None:
        self.message = message
        self.consequence = consequence
        super().__init__(message)

    def __str__(self) -> str:
        return f"{self.message.rstrip('.')}; {self.consequence}." if self.consequence else self.message


@dataclass(frozen=True)
class Fault:
    """One wrong value: which field, what it was, what is allowed, and the nearest valid choice.

    :param field: name of the field as the form, the grant file or the connection shows it.
    :param value: the value as given.
    :param problem: what is wrong with it, in a few words.
    :param allowed: the valid values, empty when they cannot be listed.
    :param nearest: the valid value closest to the given one, None when there is none.
    """

    field: str
    value: object
    problem: str
    allowed: tuple[str, ...] = ()
    nearest: str | None = None

    def __str__(self) -> str:
        allowed = f"; allowed: {', '.join(self.allowed)}" if self.allowed else ""
        nearest = "" if self.nearest is None else f"; nearest: {self.nearest}"
        return f"{self.field} = {self.value!r}: {self.problem}{allowed}{nearest}"


class ConfigError(TPUError):
    """Something that a person has written is wrong: the form, the grant, a connection, the script's files.

    :param faults: all of them, never only the first.
    :param subject: what was being checked.
    :param consequence: what it means for the TPU.
    """

    def __init__(self, faults: Iterable[Fault], subject: str = "the configuration", *, consequence: str = "") -> None:
        self.faults = tuple(faults)
        self.subject = subject
        super().__init__(f"{subject} has {len(self.faults)} fault(s)", consequence=consequence)

    def __str__(self) -> str:
        headline = f"{self.message}; {self.consequence}" if self.consequence else self.message
        return "\n".join([f"{headline}:", *(f"  - {fault}" for fault in self.faults)])


class GrantError(ConfigError):
    """The grant does not allow this; ``advice`` below the faults says how to get it all the same, if there is a way."""

    def __init__(
        self, faults: Iterable[Fault], subject: str = "the configuration", *, advice: str = "", consequence: str = ""
    ) -> None:
        self.advice = advice
        super().__init__(faults, subject, consequence=consequence)

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *([self.advice] if self.advice else [])])


class GrantViolation(GrantError):
    """The request fits no allowance of the grant."""


class GrantExpired(GrantError):
    """The grant's term is over, or ends before the planned end of the run."""


class GrantUnknown(GrantError):
    """The grant, or what is alive in the project, could not be read; unknown is never counted as free."""


class RowInUse(GrantError):
    """The grant covers the request, and its rows have no room now only because runs of this Airflow use them."""

    retry = Retry.LATER
    budget = Budget.INFRASTRUCTURE


class CloudError(TPUError):
    """Cloud TPU refused or failed a request.

    :param reason: ``ErrorInfo.reason`` of Google's answer where there is one.
    """

    budget = Budget.INFRASTRUCTURE

    def __init__(self, message: str, reason: str = "", *, consequence: str = "") -> None:
        self.reason = reason
        super().__init__(message, consequence=consequence)


class StockOut(CloudError):
    """No capacity in the zone."""

    retry = Retry.LATER


class RowTaken(StockOut):
    """An older TPU took the last of a row of the grant while this one was being created, which is given back."""


class QuotaExceeded(CloudError):
    """The quota is in use; dead queued resources count until they are deleted."""

    retry = Retry.LATER


class QuotaZero(CloudError):
    """The project has no quota of this name: the configuration is not in the grant."""


class NotOffered(CloudError):
    """The zone does not offer this type, runtime version or tier."""


class AccessDenied(CloudError):
    """IAM, a disabled API, a closed zone or the billing account."""


class HostKeysHidden(AccessDenied):
    """The organisation forbids guest attributes, in which TPU VMs publish their host keys."""


class RateLimited(CloudError):
    """Too many requests per minute."""

    retry = Retry.LATER


class TransientError(CloudError):
    """The API failed in passing; the same request may succeed.

    :param refused: it is the answer to a create, which may be final: a few of them in a row are (``CreateRefused``).
    """

    retry = Retry.SOON

    def __init__(self, message: str, reason: str = "", refused: bool = False, *, consequence: str = "") -> None:
        self.refused = refused
        super().__init__(message, reason, consequence=consequence)


class CreateRefused(CloudError):
    """The API has answered every create of several tries in a row with an error: another try changes nothing."""


class CreateUnanswered(CloudError):
    """No create of many tries in a row was answered, although the API answers other calls."""


class NameTaken(CloudError):
    """A resource of this name exists and is not ours."""


class ResourceNotFound(CloudError):
    """The API does not know the resource."""


class TPULost(CloudError):
    """The TPU is gone or going; what was not in GCS is lost with it.

    :param at: aware instant at which the loss was seen: from then on the TPU is not charged. None while the node is
        still there, or while it is not known.
    """

    retry = Retry.AT_ONCE

    def __init__(self, message: str, at: datetime | None = None, *, consequence: str = "") -> None:
        self.at = at
        super().__init__(message, consequence=consequence)


class TPUPreempted(TPULost):
    """Google took the TPU back."""


class TPUMaintenance(TPULost):
    """A maintenance event ended the TPU."""


class TPUVanished(TPULost):
    """The TPU was deleted by a person or another program, or the API no longer knows it."""


class HostLost(TPULost):
    """The machine has been silent for too long although the API calls it READY, or its repair has failed."""


class TPUStopped(TPULost):
    """A person stopped the TPU: only a person starts the run again."""

    retry = Retry.NEVER


class RemoteError(TPUError):
    """Something on the way to the TPU VM, or on it, failed."""

    budget = Budget.INFRASTRUCTURE


class ConnectionFailed(RemoteError):
    """No SSH connection, or it was lost: neither success nor failure of the run."""

    retry = Retry.SOON


class HostKeyMismatch(RemoteError):
    """The worker's host key is not the one pinned for this incarnation."""


class LoginRefused(RemoteError):
    """The worker does not accept the key (yet)."""

    retry = Retry.SOON


class ProtocolMismatch(RemoteError):
    """What answers on the worker is no runner of this release: another one, a login banner or a forced command."""


class AcceleratorMissing(RemoteError):
    """Exit 69: the promised TPU is missing or did not initialise; or a process that is not of the run holds it."""

    retry = Retry.AT_ONCE


class RunInterrupted(RemoteError):
    """The run was stopped from outside; a checkpoint may exist."""

    retry = Retry.SOON  # what stopped it may be taking the machine as well
    killed = False  # True if nobody had asked it to stop: the kernel ends so what uses too much memory


class StorageUnreachable(RemoteError):
    """Exit 74: the script could not reach its storage, or the installation of its requirements the package index."""

    retry = Retry.SOON


class SourceUnreachable(RemoteError):
    """The server of the project's repository did not answer, or gave no whole answer."""

    retry = Retry.SOON


class RunStalled(RemoteError):
    """No progress for too long."""

    retry = Retry.AT_ONCE


class RunStopped(RemoteError):
    """A person stopped the run with the runner's stop command: only a person starts it again."""


class RunFailed(RemoteError):
    """The user's code failed.

    :param exit_code: exit status, None when a signal ended it.
    :param tail: the last lines of its log.
    """

    budget = Budget.CODE

    def __init__(self, message: str, exit_code: int | None = None, tail: str = "", *, consequence: str = "") -> None:
        self.exit_code, self.tail = exit_code, tail
        super().__init__(message, consequence=consequence)

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self.tail}" if self.tail else super().__str__()


class TasksFailed(TPUError):
    """Tasks of the DAG run have failed, so the run has; or a person has marked all of it failed."""


class DeadlineExceeded(TPUError):
    """The run's deadline has passed."""


class WindowClosed(TPUError):
    """No TPU was READY in the window of the run (start_within_hours): it ends as skipped, not as failed."""


class BudgetExhausted(TPUError):
    """The run lost its TPU more often than allowed, or made no progress in several attempts."""


class ArtifactError(TPUError):
    """What the run produced is missing, incomplete or damaged."""

    budget = Budget.INFRASTRUCTURE


class NothingProduced(ArtifactError):
    """The run ended well and left no artifact."""

    budget = Budget.CODE


class ChecksumMismatch(ArtifactError):
    """An object in the bucket differs from what was sent."""

    retry = Retry.SOON


class UploadIncomplete(ArtifactError):
    """Some objects did not arrive."""

    retry = Retry.SOON


class ArtifactsLost(ArtifactError):
    """The TPU went before what the run produced was in the bucket; only another training brings it back."""


class LedgerError(TPUError):
    """The run record or the ledger could not be kept or read."""


class UnreadableObject(LedgerError):
    """One object in the bucket cannot be read: nothing is changed, deleted or counted because of it."""


class DamagedObject(UnreadableObject):
    """An object is no JSON, has a wrong field or lacks one, or lies at another's place."""


class UnknownVersion(UnreadableObject):
    """An object is of a version that this release does not read.

    :param name: path or URI of the object.
    :param version: its version, None if it names none.
    """

    def __init__(self, message: str, name: str = "", version: object = None, *, consequence: str = "") -> None:
        self.name = name
        self.version = version
        super().__init__(message, consequence=consequence)


class LeaseHeld(LedgerError):
    """Another DAG run holds the lease on this prefix."""


class ModelBusy(LedgerError):
    """Another DAG run trains the same model: of several nights, one trains at a time."""

    retry = Retry.LATER


class LeaseLost(LedgerError):
    """A newer attempt has taken the lease over."""
