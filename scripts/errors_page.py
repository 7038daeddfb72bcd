# SPDX-License-Identifier: Apache-2.0
"""Write docs/errors.md from the error tree, so that the page says what the retry policy does.

Usage: ``errors_page.py > docs/errors.md``. Meaning, retry and budget come from the classes, cost and what to do from
``consequences.py``.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "plugins"))

from airflow_tpu import errors
from airflow_tpu.clients import airflow_state, ssh_login
from airflow_tpu.consequences import ADVICE
from airflow_tpu.core.tpu.api_errors import classify, classify_token
from airflow_tpu.hooks.tpu import NO_PROJECT
from airflow_tpu.retry import OF_AIRFLOW

WAITS = {
    errors.Retry.NEVER: "no",
    errors.Retry.AT_ONCE: "at once",
    errors.Retry.SOON: "after a short pause",
    errors.Retry.LATER: "after a wait",
}


def leaves(kind: type[errors.TPUError]) -> Iterator[type[errors.TPUError]]:
    """Every class below one that is raised as such, in the order of the tree."""
    # A task that has failed in this process has made a class that ends it without frames (operators/reporting.py).
    for child in (one for one in kind.__subclasses__() if not issubclass(one, SystemExit)):
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
    (7, "Permission denied on resource project ...", "CONSUMER_INVALID"),
    (7, "Consumer 'projects/...' has been suspended", "CONSUMER_SUSPENDED"),
    (16, "Request had invalid authentication credentials", ""),
    (14, "Getting metadata from plugin failed with error: ... [SSL: CERTIFICATE_VERIFY_FAILED] ...", ""),
    (14, "Getting metadata from plugin failed with error: ... 407 Proxy Authentication Required", ""),
    (8, "Quota 'CPUS_ALL_REGIONS' exceeded.  Limit: 12.0 globally.", ""),
    (403, "The billing account for the owning project is disabled in state absent", "accountDisabled"),
    (403, "The project to be billed is associated with a closed billing account.", ""),
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


TOKENS = [
    "Your default credentials were not found. To set up Application Default Credentials, see ...",
    "[Errno 2] No such file or directory: '/opt/airflow/key.json'",
    "[Errno 13] Permission denied: '/opt/airflow/key.json'",
    "Unrecognised extension for key file.",
    "Invalid key JSON.",
    "Service account info was not in the expected format, missing fields token_uri.",
    "Could not deserialize key data. The data may be in an incorrect format, ...",
]
"""What Google's libraries say of a connection before any call."""

NO_BUCKETS = ("The specified bucket does not exist",)

LOGINS = {
    "extra.private_key is empty": ssh_login.NO_KEY,
    "Passphrase must be specified to import encrypted private key": ssh_login.LOCKED,
    "Invalid private key": ssh_login.UNREADABLE,
}
"""What asyncssh says of the key in the SSH connection, and what the error says instead."""


def foreign_rows() -> list[str]:
    """Rows of what Airflow, Google's libraries and asyncssh raise by themselves."""
    undefined = str(airflow_state.undefined("google_cloud_default").faults[0].problem).partition(": ")[2]
    rows = [("The conn_id `google_cloud_default` isn't defined", "ConfigError", undefined)]
    rows += [(text, "AccessDenied", str(classify_token(text)).rpartition("). ")[2]) for text in TOKENS]
    rows.append(
        (
            "project is missing from the connection and from the credentials",
            "ConfigError",
            NO_PROJECT.partition("; ")[2],
        )
    )
    rows += [(text, "ConfigError", f"The key {problem}") for text, problem in LOGINS.items()]
    rows += [(text, "ConfigError", "Create the bucket, or correct its name.") for text in NO_BUCKETS]
    rows += [
        (path.rpartition(".")[2], "fails at once" if final else "tried again", reason)
        for path, final, reason in OF_AIRFLOW
    ]
    return [
        f"| {text} | {kind if ' ' in kind else f'`{kind}`'} | {advice[:1].upper()}{advice[1:].rstrip('.')}. |"
        for text, kind, advice in rows
    ]


def page() -> str:
    """The whole page."""
    rows = [
        f"| `{kind.__name__}` | {meaning(kind)} | {WAITS[kind.retry]} | {kind.budget.value} | {ADVICE[kind.__name__]} |"
        for kind in leaves(errors.TPUError)
    ]
    return "\n".join([*HEAD, *rows, *FOREIGN, *foreign_rows(), *API, *(said_row(*said) for said in SAID), ""])


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
    "The log of a failed task ends with one line for a person: what happened, what it costs, what to do, and the name of the error in this table.",
    "Python frames stand above it for an error that has no row here: a fault of this package, which is worth a report.",
    "",
    "| error | meaning | tried again | budget | cost, and what to do |",
    "|---|---|---|---|---|",
]

FOREIGN = [
    "",
    "## What Airflow and Google's libraries say",
    "",
    "On the way to the first call: a connection that is missing, a key that cannot be read, a template that cannot be rendered. None is tried",
    "again where no other try helps.",
    "",
    "| the text has | error | what to do |",
    "|---|---|---|",
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
