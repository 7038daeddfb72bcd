# SPDX-License-Identifier: Apache-2.0
"""What an error means for the TPU, stated by the code that knows whether there is one; and what a person does.

The code that finds a wrong field is the same before a TPU is asked for, while one trains, and in the command line. So
an error has no consequence of its own: the call or the task that it ends states it, and the innermost statement stays.
The log of a task ends with it and with :data:`ADVICE`, which ``docs/errors.md`` lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from airflow_tpu.errors import TPUError

NOTHING_CREATED = "nothing was created"
MAY_BE_CREATED = "the TPU may have been created: the next try looks for it, and the reaper deletes it after the run"
MAY_LIVE = "the TPU may be alive: the task delete deletes it, and the reaper if that fails"
BEING_DELETED = "what this attempt asked for is being deleted"
LOST = "the lost TPU costs nothing more"
DELETE_PENDING = "the TPU may be alive: this task tries again, then the reaper deletes it"
DELETED = "the TPU is deleted"
BILLED = "it is billed until it is deleted"
NO_TPU = "this task neither creates nor deletes a TPU"


@contextmanager
def stated(consequence: str, kind: type[TPUError] = TPUError) -> Iterator[None]:
    """State the consequence of every error that leaves the block, or the decorated function, without one.

    :param consequence: one of the sentences above.
    :param kind: errors that have it.
    """
    try:
        yield
    except kind as error:
        error.consequence = error.consequence or consequence
        raise


@dataclass(frozen=True)
class Advice:
    """Two sentences on one class of the error tree.

    :param cost: what it means for the TPU and the bill where the error itself does not say.
    :param todo: what a person does.
    """

    cost: str
    todo: str

    def __str__(self) -> str:
        return f"{self.cost} {self.todo}".strip()


_NOTHING = "Nothing was created, nothing is billed."
_REFUSED = "Refused by check_grant, lease or create: nothing was created, nothing is billed."
_STATED = "The message says whether a TPU may be alive."
_RECREATED = "The lost TPU costs nothing more."
_RESUMES = "Nothing: the next try makes a new TPU and resumes from the newest whole checkpoint."
_COPIED = "The next try copies again while the TPU lives, which is billed or counted meanwhile."

ADVICE = {
    "ConfigError": Advice(_STATED, "Correct every field that is named, then trigger again or clear the task."),
    "GrantViolation": Advice(
        _REFUSED,
        "Take the nearest granted row that the message names, or accept the bill that it shows. Raised by "
        "tpu_grant_watch: delete what the message names, it is billed until then.",
    ),
    "GrantExpired": Advice(
        _REFUSED, "Ask for an extension, or shorten the deadline so that the run ends within the term."
    ),
    "GrantUnknown": Advice(
        _STATED, "Repair the grant file, or the access that listing the project's TPUs needs, and clear the task."
    ),
    "StockOut": Advice(
        "Nothing is billed while waiting.", "Nothing. With on_stock_out: walk the run asks for the grant's other rows."
    ),
    "RowTaken": Advice(
        "The younger TPU is deleted before anything ran on it.", "Nothing: the run waits, or asks for another row."
    ),
    "RowInUse": Advice(
        "Nothing was created, nothing is billed while waiting.",
        "Nothing: check_grant says it, the lease is taken without a TPU, and create waits outside a worker until a run "
        "that the line names has ended, the oldest first, until deadline_hours or start_within_hours. Mark create as "
        "failed to stop.",
    ),
    "QuotaExceeded": Advice(
        "Nothing is billed while waiting.",
        "Delete what the message names: queued resources that failed or were suspended count too.",
    ),
    "QuotaZero": Advice(
        _NOTHING,
        "The grant has not arrived in this project, or is for another type, tier or zone. Compare it with the letter.",
    ),
    "NotOffered": Advice(
        "What the request left behind is deleted.", "Take a zone, type or runtime version of the catalogue."
    ),
    "AccessDenied": Advice(
        _STATED,
        "Do what the message says (a role, an API, credentials, the billing account), then clear the task.",
    ),
    "HostKeysHidden": Advice(
        "Handled inside.",
        "Nothing: the first host key that is seen is trusted until the TPU is deleted, and the log says so.",
    ),
    "RateLimited": Advice("", "Nothing to do; start fewer runs in the same minute if it keeps happening."),
    "TransientError": Advice("", "Nothing to do."),
    "CreateRefused": Advice(
        _NOTHING,
        "Read the last answer in the message: a service account, network or role may be missing. Clear `create`.",
    ),
    "CreateUnanswered": Advice(
        "", "Look at Google's status page and at proxies between Airflow and the API. Clear `create`."
    ),
    "NameTaken": Advice("", "The resource was made by hand or by another program. Delete it, or give it another name."),
    "ResourceNotFound": Advice(
        "Mostly handled inside.", "Where you see it, the name, the zone or the project is wrong."
    ),
    "TPULost": Advice(_RECREATED, _RESUMES),
    "TPUPreempted": Advice(_RECREATED, f"{_RESUMES} On-demand rows of the grant are not preempted."),
    "TPUMaintenance": Advice(_RECREATED, _RESUMES),
    "TPUVanished": Advice(_RECREATED, f"{_RESUMES} Find out who deletes TPUs in this project."),
    "HostLost": Advice(
        "The silent TPU is deleted, which ends its cost.",
        f"{_RESUMES} If it repeats, check that Airflow reaches the VM's SSH port.",
    ),
    "TPUStopped": Advice("A stopped TPU runs nothing.", "Clear the run to continue: it resumes on a new one."),
    "ConnectionFailed": Advice(
        "The run continues without the connection.",
        "Nothing: the next try re-attaches at the exact byte of its log. If it never connects, check that Airflow "
        "reaches the VM's SSH port.",
    ),
    "HostKeyMismatch": Advice(
        "The TPU is still billed until the teardown deletes it.",
        "Another machine answers at this address: find out why before you try again.",
    ),
    "LoginRefused": Advice(
        "",
        "A key can take a minute to reach a new VM. If the error stays, the private key in the SSH connection does not "
        "belong to the public one that was sent.",
    ),
    "ProtocolMismatch": Advice(
        "",
        "Deploy one version of this package to all processes of Airflow. Where the message names a banner or a forced "
        "command, change the login: it must print nothing of its own and run what is asked for.",
    ),
    "AcceleratorMissing": Advice(
        "The TPU is deleted.",
        "Nothing: the next try makes a new TPU, which counts as one of max_preemptions; three in a row end the run: "
        "the framework does not fit the runtime version.",
    ),
    "RunInterrupted": Advice("", "Nothing: the next try resumes from the newest whole checkpoint."),
    "StorageUnreachable": Advice(
        "The TPU stays and the run is tried again.",
        "Check the bucket and the VM's service account; of a package index, that the VM reaches it.",
    ),
    "SourceUnreachable": Advice(
        "",
        "Nothing: the next try asks again; the commit stays the same. Check that the Airflow workers reach the server, "
        "through its proxy (https_proxy) where there is one.",
    ),
    "RunStopped": Advice(
        "The TPU is deleted, the run's output is kept.",
        "Clear the task to continue from the newest checkpoint.",
    ),
    "RunStalled": Advice("The run is stopped and tried again.", "Look at the last lines of its log."),
    "RunFailed": Advice(
        "The TPU is deleted, log and output are kept.",
        "Correct the script by the last lines of its log, which the message shows, then clear train or trigger again.",
    ),
    "TasksFailed": Advice(
        "The task delete ends the TPU; where delete itself has failed, tpu_reaper does.",
        "Read the end of the log of the first task that the message names. Of a run that a person has marked failed "
        "nothing: cleared, it resumes from its newest checkpoint.",
    ),
    "BudgetExhausted": Advice(
        "", "Raise max_preemptions, or save checkpoints more often, and clear the run: it resumes where it was."
    ),
    "DeadlineExceeded": Advice(
        "The TPU is deleted, the output is kept.", "Raise deadline_hours and start again; it resumes."
    ),
    "WindowClosed": Advice(
        "Nothing is billed any more, and the run is no failure.",
        "Raise start_within_hours, or let the next run try.",
    ),
    "NothingProduced": Advice("The TPU is deleted.", "Write results into TRC_OUTPUT_DIR."),
    "ChecksumMismatch": Advice(_COPIED, "Nothing, unless it repeats."),
    "UploadIncomplete": Advice(_COPIED, "Nothing, unless it repeats."),
    "ArtifactsLost": Advice(_RECREATED, "Clear the task train with everything after it: it resumes where it was."),
    "UnknownVersion": Advice(
        "Nothing was changed.", "Use the release of this package that wrote the object; the message names both."
    ),
    "DamagedObject": Advice(
        "Its run is left alone, others continue.", "Repair the object that the message names, or remove it."
    ),
    "LeaseHeld": Advice(_NOTHING, "Wait for the other DAG run, or take another artifact prefix."),
    "ModelBusy": Advice(
        _NOTHING,
        "Nothing: the run waits, without a worker slot, until the DAG run that the message names is over, or its turn "
        "has expired.",
    ),
    "LeaseLost": Advice(
        "This attempt deletes nothing; the newer one has the TPU.", "Nothing: look at the newer attempt."
    ),
    "LedgerError": Advice(
        "The bucket could not be read or written. Until it can, no TPU is created.",
        "Look at the bucket and at the rights on it.",
    ),
}
"""By the name of the class; a class without an entry has that of its parent."""


def advice(error: TPUError) -> Advice:
    """What to say of an error."""
    return next((ADVICE[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in ADVICE), Advice("", ""))
