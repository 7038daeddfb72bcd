"""Write docs/errors.md from the error tree, so that the page says what the retry policy does.

Usage: ``errors_page.py > docs/errors.md``. Meaning, retry and budget come from the classes; what to do is written here, and a
test demands it for every leaf.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "plugins"))

from airflow_tpu import errors
from airflow_tpu.core.tpu.api_errors import classify

WAITS = {
    errors.Retry.NEVER: "no",
    errors.Retry.SOON: "at once",
    errors.Retry.LATER: "after a wait",
}
NOTHING = "Nothing was created, nothing is billed."
REFUSED = "Refused by check_grant, lease or create: nothing was created, nothing is billed."
RECREATED = (
    "The lost TPU costs nothing more. The next try makes a new one and resumes from the newest whole checkpoint."
)

ADVICE = {
    "ConfigError": "The message says whether a TPU may be alive. Correct every field that it names.",
    "GrantViolation": f"{REFUSED} Take the nearest granted row that the message names, or accept the bill that it shows. Raised by "
    "tpu_grant_watch: what the message names is billed until you delete it.",
    "GrantExpired": f"{REFUSED} Ask for an extension, or shorten the deadline so that the run ends within the term.",
    "GrantUnknown": "The message says whether a TPU may be alive. Repair the grant file, or the access that listing the project's TPUs needs.",
    "RowInUse": "Nothing to do: check_grant says it, the lease is taken without a TPU, and create waits outside a worker until a run "
    "that the line names has ended, the oldest first, until deadline_hours or start_within_hours. Mark create as failed to stop.",
    "StockOut": "Nothing is billed while waiting. With on_stock_out: walk the run asks for the grant's other rows in the region.",
    "RowTaken": "The younger TPU is deleted before anything ran on it. The run waits, or asks for another row, as without capacity.",
    "QuotaExceeded": "Delete what the message names: queued resources that failed or were suspended count too.",
    "QuotaZero": "The grant has not arrived in this project, or is for another type, tier or zone. Compare it with the letter.",
    "NotOffered": "What the request left behind is deleted. Take a zone, type or runtime version of the catalogue.",
    "AccessDenied": "The message says whether a TPU may be alive. Enable the Cloud TPU API, give the account the role TPU Admin, check the zone and the billing account.",
    "HostKeysHidden": "Handled inside: the first host key that is seen is trusted until the TPU is deleted, and the log says so.",
    "RateLimited": "Nothing to do; start fewer runs in the same minute if it keeps happening.",
    "TransientError": "Nothing to do.",
    "CreateRefused": "Read the last answer in the message: a service account, network or role may be missing. Clear `create`.",
    "CreateUnanswered": "Look at Google's status page and at proxies between Airflow and the API. Clear `create`.",
    "NameTaken": "The resource was made by hand or by another program. Delete it, or give it another name.",
    "ResourceNotFound": "Mostly handled inside. If you see it, the name, the zone or the project is wrong.",
    "TPULost": RECREATED,
    "TPUPreempted": f"{RECREATED} On-demand rows of the grant are not preempted.",
    "TPUMaintenance": RECREATED,
    "TPUVanished": f"{RECREATED} Find out who deletes TPUs in this project.",
    "HostLost": "The silent TPU is deleted, which ends its cost. The next try makes a new one and resumes from the newest "
    "whole checkpoint. If it repeats, check that Airflow reaches the VM's SSH port.",
    "TPUStopped": "A stopped TPU runs nothing. Clear the run to continue: it resumes on a new one.",
    "ConnectionFailed": "The run continues without the connection; the next try re-attaches at the exact byte of its log. "
    "If it never connects, check that Airflow reaches the VM's SSH port.",
    "HostKeyMismatch": "The TPU is still billed until the teardown deletes it. Another machine answers at this address: find "
    "out why before you try again.",
    "LoginRefused": "A key can take a minute to reach a new VM. If the error stays, the private key in the SSH connection does not "
    "belong to the public one that was sent.",
    "ProtocolMismatch": "Deploy one version of this package to all processes of Airflow. Where the message names a banner or a forced command, "
    "change the login: it must print nothing of its own and run what is asked for.",
    "AcceleratorMissing": "The next try makes a new TPU, which counts as one of max_preemptions; three in a row end the run: the framework "
    "does not fit the runtime version.",
    "RunInterrupted": "The next try resumes from the newest whole checkpoint.",
    "StorageUnreachable": "The TPU stays and the run is tried again. Check the bucket and the VM's service account; of a package index, that the VM "
    "reaches it.",
    "SourceUnreachable": "The next try asks again; the commit stays the same. Check that the Airflow workers reach the server, through its proxy "
    "(https_proxy) where there is one.",
    "RunStopped": "The TPU is deleted, the run's output is kept. Clear the task to continue from the newest checkpoint.",
    "RunStalled": "The run is stopped and tried again. Look at the last lines of its log.",
    "RunFailed": "The TPU is deleted, log and output are kept. The message ends with the last lines of the log.",
    "BudgetExhausted": "Raise max_preemptions, or save checkpoints more often, and clear the run: it resumes where it was.",
    "DeadlineExceeded": "The TPU is deleted, the output is kept. Raise deadline_hours and start again; it resumes.",
    "WindowClosed": "Nothing is billed any more, and the run is no failure. Raise start_within_hours, or let the next run try.",
    "NothingProduced": "The TPU is deleted. Write results into TRC_OUTPUT_DIR.",
    "ChecksumMismatch": "The next try copies again while the TPU lives, which is billed or counted meanwhile.",
    "UploadIncomplete": "The next try copies again while the TPU lives, which is billed or counted meanwhile.",
    "ArtifactsLost": "The lost TPU costs nothing more. Clear the task train with everything after it: it resumes where it was.",
    "UnknownVersion": "Use the release of this package that wrote the object; the message names both. Nothing was changed.",
    "DamagedObject": "Repair the object that the message names, or remove it; until then its run is left alone. Others continue.",
    "LeaseHeld": f"{NOTHING} Wait for the other DAG run, or take another artifact prefix.",
    "LeaseLost": "This attempt deletes nothing; the newer one has the TPU.",
    "LedgerError": "The bucket could not be read or written. Until it can, no TPU is created.",
}


def leaves(kind: type[errors.TPUError]) -> Iterator[type[errors.TPUError]]:
    """Every class below one that is raised as such, in the order of the tree."""
    for child in kind.__subclasses__():
        if child.__name__ in ADVICE or not child.__subclasses__():
            yield child
        yield from leaves(child)


SAID = [
    (7, "Cloud TPU API has not been used in project ... before or it is disabled", ""),
    (7, "Permission denied on 'locations/us-central2-b' (or it may not exist)", "LOCATION_POLICY_VIOLATED"),
    (7, "Permission 'tpu.nodes.create' denied on resource", ""),
    (7, "cannot create a TPU Node on a project linked to a free-trial billing account", ""),
    (7, "The tpu.googleapis.com API requires a quota project, which is not set by default", "SERVICE_DISABLED"),
    (7, "Caller does not have required permission to use project ...", "USER_PROJECT_DENIED"),
    (7, "This API method requires billing to be enabled", "BILLING_DISABLED"),
    (403, "The billing account for the owning project is disabled in state absent", "accountDisabled"),
    (400, "Bucket is a requester pays bucket but no user project provided.", "required"),
    (14, "Getting metadata from plugin failed with error: ('Unable to acquire impersonated credentials', ...)", ""),
    (14, "Getting metadata from plugin failed with error: Reauthentication is needed", ""),
    (14, "Getting metadata from plugin failed with error: invalid_client: The OAuth client was not found", ""),
    (14, "Getting metadata from plugin failed with error: invalid_grant: Token has been expired or revoked", ""),
    (14, "Failed to retrieve ... from the Google Compute Engine metadata service. Status: 404", ""),
    (7, "Request had insufficient authentication scopes", "ACCESS_TOKEN_SCOPE_INSUFFICIENT"),
    (
        7,
        "Request is prohibited by organization's policy. vpcServiceControlsUniqueIdentifier: ...",
        "SECURITY_POLICY_VIOLATED",
    ),
    (9, "Constraint constraints/compute.vmExternalIpAccess violated for project ...", ""),
    (9, "Constraint constraints/compute.disableGuestAttributesAccess violated for project ...", ""),
    (9, "Constraint constraints/compute.requireOsLogin violated for project ...", ""),
    (9, "Constraint constraints/compute.restrictSharedVpcSubnetworks violated for project ...", ""),
    (9, "Constraint constraints/iam.disableCrossProjectServiceAccountUsage violated for project ...", ""),
    (9, "Constraint constraints/gcp.resourceLocations violated", ""),
    (9, "Constraint constraints/compute.trustedImageProjects violated for project ...", ""),
    (7, "Required 'compute.subnetworks.use' permission for 'projects/.../subnetworks/...'", ""),
    (3, "Invalid value for field '...network': The referenced network resource cannot be found", ""),
    (7, "The user does not have access to service account '...'", ""),
    (3, 'Service account "...-compute@developer.gserviceaccount.com" is disabled', ""),
    (3, "update is not supported while in state PREEMPTED", ""),
    (3, "Your request to provision TPU Node has been denied", ""),
    (8, "Maximum number of CreateNode requests per minute has been reached", "RATE_LIMIT_EXCEEDED"),
    (8, 'There is no more capacity in the zone "us-central2-b"', ""),
    (8, "Insufficient reserved capacity", ""),
    (9, "You have reached IN_USE_ADDRESSES limit", ""),
    (8, "Quota limit 'TPUV2s...' has been exceeded. Limit: 0 in region us-central1", ""),
    (8, "Quota limit 'TPUV2s...' has been exceeded. Limit: 16 in region us-central1", ""),
    (8, "Quota 'TPUV5sLitepodServing...' exhausted. Limit 4 in zone us-central1-a", ""),
    (3, "Queueing is not supported for accelerator type v2-8", ""),
    (3, "provisioning model is not supported for accelerator type", ""),
    (5, "Reservation not found", ""),
    (3, 'Cloud TPU received an invalid AcceleratorType, "v2-9"', ""),
    (5, 'The "RuntimeVersion" value "tpu-vm-tf-2.4" was not found', ""),
    (3, "No default subnetwork was found in region us-central1", ""),
    (6, "Resource already exists", ""),
    (5, "Resource 'projects/.../nodes/...' was not found", ""),
    (13, "an internal error has occurred", ""),
    (14, "failed to connect to all addresses", ""),
]
"""What the API says, with its code and reason, as people have reported it; every rule that knows a text is in it."""


def page() -> str:
    """The whole page."""
    rows = [
        f"| `{kind.__name__}` | {meaning(kind)} | {WAITS[kind.retry]} | {kind.budget.value} | {ADVICE[kind.__name__]} |"
        for kind in leaves(errors.TPUError)
    ]
    return "\n".join([*HEAD, *rows, *API, *(said_row(*said) for said in SAID), ""])


def said_row(code: int, text: str, reason: str) -> str:
    """Return the row of one text of the API: the error that it becomes, and what to do."""
    error = classify(code, text, reason)
    if isinstance(error, errors.ConfigError):
        advice = f"{error.faults[0].problem.removeprefix(text).strip('. ')}."
    else:
        advice = str(error).rpartition("). ")[2]
    return f"| {text} | `{type(error).__name__}` | {advice} |"


def meaning(kind: type[errors.TPUError]) -> str:
    """First line of the class's docstring."""
    return (inspect.getdoc(kind) or "").split("\n", 1)[0]


HEAD = [
    "# Errors",
    "",
    "<!-- Written by scripts/errors_page.py from plugins/airflow_tpu/errors.py; do not edit. -->",
    "",
    "Every error of the package, whether the task is tried again, on which budget, and what to do. *Infrastructure* retries are many",
    "(`max_preemptions`), *code* retries are none by default: a bug in the script does not get better on another TPU.",
    "",
    "A message ends with what the error means for the TPU: that nothing was created, that the TPU is deleted, or that it may be alive",
    "and what deletes it. The command line says nothing of the kind, since it creates and deletes none.",
    "",
    "| error | meaning | tried again | budget | cost, and what to do |",
    "|---|---|---|---|---|",
]

API = [
    "",
    "## What the Cloud TPU API says",
    "",
    "Google documents none of its texts. These are known from reports; search for a few words of your message. A text that is not listed is judged by",
    "its code, and the whole text with its `[EID: ...]`, which Google's support asks for, is in the message.",
    "",
    "| the API says | error | what to do |",
    "|---|---|---|",
]

if __name__ == "__main__":
    print(page(), end="")
