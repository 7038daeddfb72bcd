# SPDX-License-Identifier: Apache-2.0
"""Real texts of the Cloud TPU API and what they mean for the next try."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_tpu.core.tpu.api_errors import classify
from airflow_tpu.errors import (
    AccessDenied,
    ConfigError,
    HostKeysHidden,
    NameTaken,
    NotOffered,
    QuotaExceeded,
    QuotaZero,
    RateLimited,
    ResourceNotFound,
    Retry,
    StockOut,
    TPUError,
    TransientError,
)

NO_CAPACITY = (
    'There is no more capacity in the zone "us-central2-b"; you can try in another zone where Cloud TPU is offered'
)
VIOLATED = "violated for project 123456789."
ACCOUNT = "service_account"
PLUGIN = "Getting metadata from plugin failed with error"
POOL = "HTTPSConnectionPool(host='oauth2.googleapis.com', port=443): Max retries exceeded with url: /token"
QUOTA = "TPUV2sPreemptiblePodPerProjectPerRegionForTPUAPI"
BAD_TYPE = (
    "Cloud TPU received a bad request. The requested accelerator configuration for accelerator type, "
    '"v2-9", could not be found in the zonal accelerator configurations for "us-central1-f"'
)

# Texts from public reports, by what they mean. Codes are google.rpc codes or HTTP status.
TABLE: list[tuple[int, str, str, type[TPUError]]] = [
    (8, NO_CAPACITY, "", StockOut),
    (8, f"{NO_CAPACITY}, or you can queue your request to get capacity when available. [EID: 0x1f2e]", "", StockOut),
    (8, "Insufficient reserved capacity. Contact customer support to increase your reservation.", "", StockOut),
    (9, "Insufficient reserved capacity. Contact customer support to increase your reservation.", "", StockOut),
    (8, "Insufficient capacity.", "", StockOut),
    (5, "Reservation not found", "", NotOffered),
    (3, "A target reservation must be specified when the host project has at least one reservation", "", NotOffered),
    (3, "Queueing is not supported for accelerator type v2-8 in zone us-central1-f", "", NotOffered),
    (9, "Queueing is not supported for accelerator type v2-8", "", NotOffered),
    (3, 'FLEX_START provisioning model is not supported for accelerator type "v2-8" in location "z"', "", NotOffered),
    (8, f"Quota limit '{QUOTA}' has been exceeded. Limit: 16 in region us-central1.", "", QuotaExceeded),
    (429, f"Quota limit '{QUOTA}' has been exceeded. Limit: 16 in zone us-central1-f. [EID: 0xab]", "", QuotaExceeded),
    (8, f"Quota '{QUOTA}' exhausted. Limit 16 in zone us-central1-f", "", QuotaExceeded),
    (8, f"Quota limit '{QUOTA}' has been exceeded. Limit: 0 in region us-central1. [EID: 0xab]", "", QuotaZero),
    (8, f"Quota '{QUOTA}' exhausted. Limit 0 in zone us-central1-f", "", QuotaZero),
    (8, "Quota 'TPUV5sLitepodServingPerProjectPerZoneForTPUAPI' exhausted. Limit 4 in zone z", "", QuotaExceeded),
    (8, "Quota limit 'Q' has been exceeded. Limit: 0.5 in zone z", "", QuotaExceeded),
    (8, "Maximum number of CreateNode requests per minute has been reached", "", RateLimited),
    (429, "Too many requests", "RATE_LIMIT_EXCEEDED", RateLimited),
    (8, "", "", RateLimited),
    (9, "You have reached IN_USE_ADDRESSES limit.", "", QuotaZero),
    (13, "an internal error has occurred", "", TransientError),
    (500, "an internal error has occurred [EID: 0x77]", "", TransientError),
    (3, 'Cloud TPU received an invalid AcceleratorType, "v2-9" for zone "z". Valid values are "v2-8"', "", NotOffered),
    (3, BAD_TYPE, "", NotOffered),
    (3, 'Cloud TPU received an invalid argument. The field "TensorflowVersion" cannot be "2.4".', "", NotOffered),
    (5, 'The "RuntimeVersion" value "tpu-vm-tf-2.4" was not found.', "", NotOffered),
    (3, 'The "runtime_version" value "tpu-vm-tf-2.4" was not found.', "", NotOffered),
    (7, "Permission denied on 'locations/us-central2-b' (or it may not exist).", "", AccessDenied),
    (7, "denied", "LOCATION_POLICY_VIOLATED", AccessDenied),
    (403, "Cloud TPU API has not been used in project 12 before or it is disabled. Enable it", "", AccessDenied),
    (7, "off", "SERVICE_DISABLED", AccessDenied),
    (7, "Permission 'tpu.nodes.create' denied on resource", "", AccessDenied),
    (9, "Constraint constraints/gcp.resourceLocations violated for projects/p", "", AccessDenied),
    (3, "Constraint constraints/gcp.resourceLocations violated for projects/p", "", AccessDenied),
    (403, "cannot create a TPU Node on a project linked to a free-trial billing account", "", AccessDenied),
    (16, "Request had invalid authentication credentials", "", AccessDenied),
    (2, "('invalid_grant: Token has been expired or revoked.')", "", AccessDenied),
    (2, "Reauthentication failed", "", AccessDenied),
    (9, f"Constraint constraints/compute.vmExternalIpAccess {VIOLATED}", "", AccessDenied),
    (9, f"Constraint constraints/compute.trustedImageProjects {VIOLATED}", "", AccessDenied),
    (9, f"Constraint constraints/compute.disableGuestAttributesAccess {VIOLATED}", "", HostKeysHidden),
    (7, "Request is prohibited by organization's policy. vpcServiceControlsUniqueIdentifier: AbC", "", AccessDenied),
    (7, "The user does not have access to service account 'a'. Ask for iam.serviceAccountUser", "", AccessDenied),
    (7, "Required 'compute.subnetworks.use' permission for 'projects/h/x'", "", AccessDenied),
    (7, "This API method requires billing to be enabled.", "BILLING_DISABLED", AccessDenied),
    (5, "The project to be billed is associated with a closed billing account.", "", AccessDenied),
    (5, "Request violates VPC Service Controls.", "vpcServiceControls", AccessDenied),
    (7, "The tpu.googleapis.com API requires a quota project", "SERVICE_DISABLED", AccessDenied),
    (14, f"{PLUGIN}: ('Unable to acquire impersonated credentials', 'denied')", "", AccessDenied),
    (14, f"{PLUGIN}: invalid_client: The OAuth client was not found.", "", AccessDenied),
    (14, f"{PLUGIN}: a refusal that nobody has seen", "", AccessDenied),
    (14, f"{PLUGIN}: HTTPSConnectionPool(host='oauth2.googleapis.com', port=443): Read timed out.", "", TransientError),
    (14, f"{PLUGIN}: temporarily_unavailable: None", "", TransientError),
    (14, f"{PLUGIN}: {POOL} (Caused by NameResolutionError('x'))", "", TransientError),
    (14, f"{PLUGIN}: {POOL} (Caused by SSLError('[SSL: CERTIFICATE_VERIFY_FAILED]'))", "", AccessDenied),
    (14, f"{PLUGIN}: {POOL} (Caused by ProxyError('407 Proxy Authentication Required'))", "", AccessDenied),
    (8, "Quota 'CPUS_ALL_REGIONS' exceeded.  Limit: 12.0 globally.", "", QuotaExceeded),
    (8, "Quota 'SSD_TOTAL_GB' exceeded.  Limit: 500.0 in region us-central1.", "", QuotaExceeded),
    (8, "The zone 'projects/p/zones/z' does not have enough resources available", "", StockOut),
    (3, "Cloud TPU received a bad request. update is not supported while in state PREEMPTED", "", TransientError),
    (400, "Your request to provision TPU Node has been denied. Please migrate to TPU VM Architecture", "", NotOffered),
    (6, "Resource already exists", "", NameTaken),
    (409, "ALREADY_EXISTS: nodes/n", "", NameTaken),
    (409, "an update is in progress", "", TransientError),
    (10, "aborted", "", TransientError),
    (5, "Resource 'projects/p/locations/z/nodes/n' was not found", "", ResourceNotFound),
    (404, 'The "GuestAttributes" value "hostkeys/" was not found.', "", ResourceNotFound),
    (3, "something is wrong with the request", "", NotOffered),
    (12, "not implemented", "", NotOffered),
    (9, "the queued resource has nodes", "", TransientError),
    (14, "failed to connect to all addresses", "", TransientError),
    (503, "", "", TransientError),
    (4, "Deadline Exceeded", "", TransientError),
    (1, "cancelled", "", TransientError),
    (99, "a code from the future", "", TransientError),
]


@pytest.mark.parametrize(("code", "message", "reason", "leaf"), TABLE)
def test_every_known_text_has_its_leaf(code: int, message: str, reason: str, leaf: type[TPUError]) -> None:
    """The class follows from code, text and reason together."""
    assert type(classify(code, message, reason)) is leaf


@pytest.mark.parametrize(
    ("code", "message", "field"),
    [
        (3, "No default subnetwork was found in region us-central1", "subnetwork"),
        (3, "x does not have a subnetwork", "subnetwork"),
        (5, "The resource 'projects/p/regions/r/subnetworks/tpu' was not found", "subnetwork"),
        (5, "The resource 'projects/p/global/networks/default' was not found", "network"),
        (3, "Invalid value for field 'x': 'y'. The referenced network resource cannot be found.", "network"),
        (400, 'Project "p" has no network named "default".', "network"),
        (3, "Project p has no default network. Specify a network.", "network"),
        (
            3,
            "Invalid value for field 'resource.serviceAccount': 'x'. The specified service account does not exist.",
            ACCOUNT,
        ),
        (3, 'Service account "1-compute@developer.gserviceaccount.com" is disabled.', ACCOUNT),
        (5, "The resource 'projects/p/serviceAccounts/1-compute@x' of type 'serviceAccount' was not found.", ACCOUNT),
    ],
)
def test_a_missing_network_or_account_is_a_fault_of_the_configuration(code: int, message: str, field: str) -> None:
    """It names the field to fill in, and keeps Google's text."""
    error = classify(code, message)
    assert isinstance(error, ConfigError)
    assert error.faults[0].field == field
    assert message.rstrip(".") in str(error)


@pytest.mark.parametrize(
    ("code", "message", "advice"),
    [
        (9, f"Constraint constraints/compute.vmExternalIpAccess {VIOLATED}", "Set internal_ips"),
        (9, f"Constraint constraints/compute.managed.vmExternalIpAccess {VIOLATED}", "Set internal_ips"),
        (9, f"Constraint constraints/compute.requireOsLogin {VIOLATED}", "except this project"),
        (9, f"Constraint constraints/gcp.resourceLocations {VIOLATED}", "a granted zone that it allows"),
        (9, f"Constraint constraints/compute.requireShieldedVm {VIOLATED}", "in every zone"),
        (7, "Request is prohibited by organization's policy.", "perimeter"),
    ],
)
def test_advice_on_a_policy_is_what_helps_against_this_one(code: int, message: str, advice: str) -> None:
    """Another zone is proposed only where the policy is one of locations, and no roles where it is a perimeter."""
    said = str(classify(code, message))
    assert advice in said
    assert "roles of the account" not in said


@pytest.mark.parametrize(
    ("code", "message", "reason", "advice"),
    [
        (16, "Request had invalid authentication credentials.", "ACCESS_TOKEN_EXPIRED", "renew them"),
        (7, "Request is disallowed by organization's constraints/gcp.restrictServiceUsage", "", "in every zone"),
        (9, "Operation denied by org policy: constraints/compute.requireShieldedVm", "", "in every zone"),
        (7, "Permission denied on resource project my-project.", "CONSUMER_INVALID", "Compare project_id"),
        (7, "Project 'my-project' has been deleted.", "", "Compare project_id"),
        (7, "Consumer 'projects/my-project' has been suspended.", "CONSUMER_SUSPENDED", "billing account"),
        (14, f"{PLUGIN}: {POOL} [SSL: CERTIFICATE_VERIFY_FAILED]", "", "REQUESTS_CA_BUNDLE"),
    ],
)
def test_advice_names_no_role_where_none_helps(code: int, message: str, reason: str, advice: str) -> None:
    """A credential, a project or a proxy is no matter of roles."""
    said = str(classify(code, message, reason))
    assert advice in said
    assert "Look at the roles" not in said


def test_the_whole_text_is_kept() -> None:
    """The error id, the resource, the code and the reason are in the message, for Google's support and for people."""
    error = classify(8, f"{NO_CAPACITY} [EID: 0x1f2e]", "SOME_REASON", "nodes/n")
    for part in ("[EID: 0x1f2e]", "nodes/n", "code 8", "SOME_REASON", "Wait"):
        assert part in str(error)


def test_the_error_id_does_not_decide() -> None:
    """An id that happens to read like something else is ignored."""
    assert type(classify(8, "Quota 'Q' exhausted. Limit 16 in zone z [EID: 0x0]")) is QuotaExceeded


def test_final_and_passing_are_told_apart() -> None:
    """A closed zone and a switched-off API give different advice, a stock-out may pass and a zero quota does not."""
    closed, off = classify(7, "Permission denied on 'locations/z'"), classify(7, "", "SERVICE_DISABLED")
    assert str(closed) != str(off)
    assert classify(8, NO_CAPACITY).retry is Retry.LATER
    assert classify(8, "Quota 'Q' exhausted. Limit 0 in zone z").retry is Retry.NEVER


@given(st.integers(-5, 600), st.text(max_size=80), st.text(max_size=20))
def test_any_answer_is_classified(code: int, message: str, reason: str) -> None:
    """Whatever the API says becomes an error with a message, never an exception of another kind."""
    error = classify(code, message, reason)
    assert isinstance(error, TPUError)
    assert message.strip() in str(error)
