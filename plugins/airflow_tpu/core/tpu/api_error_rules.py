# SPDX-License-Identifier: Apache-2.0
"""The texts of Google's refusals that are known, the leaf of our tree that each is, and what a person can do.

The texts were collected from public reports and from Google's client libraries; Google documents none of them. A rule
further up wins: the texts of missing credentials and of policies also carry the words of the general ones.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from airflow_tpu.errors import (
    AccessDenied,
    CloudError,
    HostKeysHidden,
    NameTaken,
    NotOffered,
    QuotaExceeded,
    QuotaZero,
    RateLimited,
    StockOut,
    TransientError,
)

_INTERNAL_IPS = (
    "The organisation forbids external addresses. Set internal_ips: the subnetwork then needs Private Google Access, "
    "and Cloud NAT where a run installs requirements; Airflow must reach the VPC."
)


@dataclass(frozen=True)
class Rule:
    """One known text.

    :param pattern: regular expression that finds it, in upper or lower case.
    :param leaf: what it is; None with a ``field``, which makes it a :class:`airflow_tpu.errors.ConfigError`.
    :param advice: what to do.
    :param reason: ``ErrorInfo.reason`` that says the same.
    :param field: field of the form in which a person puts it right.
    """

    pattern: str
    leaf: type[CloudError] | None
    advice: str
    reason: str = ""
    field: str = ""

    def fits(self, text: str, reason: str) -> bool:
        """Tell whether an answer is this one."""
        if self.reason and reason == self.reason:
            return True
        return bool(self.pattern) and re.search(self.pattern, text, re.IGNORECASE) is not None


TOKENS = (
    Rule(
        r"CERTIFICATE_VERIFY_FAILED|certificate verify failed",
        AccessDenied,
        "Something between Airflow and Google shows a certificate of its own, as a company's proxy does. Let Python "
        "trust it: name the file with its authority in REQUESTS_CA_BUNDLE, and for the TPU API in "
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH, where every task and the triggerer run.",
    ),
    Rule(
        r"Proxy Authentication Required",
        AccessDenied,
        "The proxy between Airflow and Google wants a login: correct HTTPS_PROXY where every task and the triggerer "
        "run, or except googleapis.com from it in NO_PROXY.",
    ),
    Rule(
        r"iam\.serviceAccounts\.getAccessToken|Unable to acquire impersonated credentials",
        AccessDenied,
        "Give the connection's account the role Service Account Token Creator on the account that impersonation_chain "
        "names, and enable the IAM Service Account Credentials API; a new role takes some minutes.",
    ),
    Rule(
        r"reauthentication (is needed|failed)|invalid_rapt|rapt_required",
        AccessDenied,
        "A person's login has run out. Run gcloud auth application-default login where Airflow reads it, or give the "
        "google_cloud_platform connection a service account, whose login does not run out.",
    ),
    Rule(
        r"(invalid|deleted|disabled|unauthorized)_client|org_internal|admin_policy_enforced",
        AccessDenied,
        "The account or OAuth client of the google_cloud_platform connection was deleted, disabled or barred. Give the "
        "connection another one.",
    ),
    Rule(
        r"invalid_grant",
        AccessDenied,
        "The credentials have expired or were revoked, their key was deleted, or this machine's clock is wrong. Renew "
        "those of the google_cloud_platform connection.",
    ),
    Rule(
        r"default credentials were not found",
        AccessDenied,
        "The connection names no key, and the machine that Airflow runs on has no login of Google's. Put keyfile_dict, "
        "key_path or key_secret_name into the google_cloud_platform connection, or attach a service account to the "
        "machine.",
    ),
    Rule(
        r"No such file or directory|File \S+ was not found",
        AccessDenied,
        "The key file that the google_cloud_platform connection names (key_path) does not exist on this worker: every "
        "machine that runs tasks or triggers needs it there. keyfile_dict travels with the connection.",
    ),
    Rule(
        r"Errno 13|Permission denied: '",
        AccessDenied,
        "Let the user that runs Airflow read the key file that the google_cloud_platform connection names (key_path).",
    ),
    Rule(
        r"Unrecognised extension for key file|Legacy P12 key",
        AccessDenied,
        "Download the key of the service account as JSON, and name a file that ends with .json in key_path.",
    ),
    Rule(
        r"Invalid key JSON|not (a )?valid json|Expecting value|not in the expected format|deserialize key data"
        r"|No key could be detected|Unable to load PEM|does not have a valid type|Invalid control character",
        AccessDenied,
        "The key in the google_cloud_platform connection (keyfile_dict, key_path or the secret) is no whole JSON key "
        "of a service account. Paste the downloaded file unchanged.",
    ),
    Rule(
        r"metadata service\. Status: 404",
        AccessDenied,
        "The machine that Airflow runs on has no service account. Attach one, or give the google_cloud_platform "
        "connection credentials of its own.",
    ),
    Rule(
        r"insufficient authentication scopes",
        AccessDenied,
        "Give the google_cloud_platform connection the scope https://www.googleapis.com/auth/cloud-platform.",
        "ACCESS_TOKEN_SCOPE_INSUFFICIENT",
    ),
)
"""Credentials for which Google gives no access token, or one that does too little."""

PROJECT = (
    Rule(
        r"requires a quota project|authenticated using end user credentials",
        AccessDenied,
        "A person's login names no project for its calls. Run gcloud auth application-default set-quota-project "
        "PROJECT where Airflow reads the login, or give the google_cloud_platform connection a service account.",
    ),
    Rule(
        r"required permission to use project|serviceusage\.services\.use",
        AccessDenied,
        "Give the account the role Service Usage Consumer on the quota project that the message names, or take that "
        "project out of the credentials.",
        "USER_PROJECT_DENIED",
    ),
    Rule(
        r"free-trial billing account",
        AccessDenied,
        "Upgrade the billing account (the credit stays); a free-trial account cannot have TPUs.",
    ),
    Rule(
        r"requires billing to be enabled|billing is disabled|billing account .*disabled"
        r"|associated with an? \w+ billing account",
        AccessDenied,
        "Link the project to an open billing account: Google demands one although the grant pays for the TPUs. For a "
        "bucket it is the bucket's project, or the quota project of the credentials.",
        "BILLING_DISABLED",
    ),
    Rule(
        r"requester pays bucket",
        AccessDenied,
        "Switch Requester Pays off for this bucket, or take another one: the runs name no project that pays for reads.",
    ),
    Rule(
        r"API has not been used in project .* or it is disabled",
        AccessDenied,
        "Switch on the API that the message names (for TPUs the Cloud TPU API), wait a few minutes and trigger again.",
        "SERVICE_DISABLED",
    ),
    Rule(
        r"Permission denied on '?locations/",
        AccessDenied,
        "The zone is not open to this project, so it is not in the grant. Choose a granted zone.",
        "LOCATION_POLICY_VIOLATED",
    ),
    Rule(
        r"permission denied on resource project|project \S+ has been deleted|project \S+ (does not exist|is not found)",
        AccessDenied,
        "There is no such project, it was deleted, or the account is in none of its roles. Compare project_id of the "
        "grant, and the project of the google_cloud_platform connection, with the id in Google's console.",
        "CONSUMER_INVALID",
    ),
    Rule(
        r"consumer \S+ has been suspended|project \S+ has been suspended",
        AccessDenied,
        "Google has suspended the project: look at its billing account and at the mails to its owners.",
        "CONSUMER_SUSPENDED",
    ),
)
"""What the project lacks: itself, a quota project, a billing account, an API, a zone."""

POLICIES = (
    Rule(
        r"vpcServiceControls|prohibited by organization'?s policy|VPC Service Controls",
        AccessDenied,
        "A VPC Service Controls perimeter stops the call, whatever roles the account has. Send the identifier to the "
        "organisation's administrator: the perimeter needs a rule for this account, or Airflow a place inside it.",
        "SECURITY_POLICY_VIOLATED",
    ),
    Rule(r"vmExternalIpAccess", AccessDenied, _INTERNAL_IPS),
    Rule(
        r"disableGuestAttributesAccess|guest attributes endpoint access is disabled",
        HostKeysHidden,
        "The organisation forbids guest attributes, in which VMs publish their host keys: the first key seen is "
        "trusted instead.",
    ),
    Rule(
        r"requireOsLogin",
        AccessDenied,
        "The organisation demands OS Login, which the key of a run cannot pass. Ask its administrator to except this "
        "project from compute.requireOsLogin.",
    ),
    Rule(
        r"restrictSharedVpc|restrictVpc",
        AccessDenied,
        "The organisation allows other networks only. Name an allowed one in network and subnetwork.",
    ),
    Rule(
        r"disableCrossProjectServiceAccountUsage",
        AccessDenied,
        "The organisation allows accounts of this project only. Name one of them in service_account.",
    ),
    Rule(
        r"gcp\.resourceLocations",
        AccessDenied,
        "The organisation allows other locations only. Use a granted zone that it allows, or ask its administrator.",
    ),
    Rule(
        r"Constraint .*violated|(denied|disallowed|prohibited) by (an? )?(custom )?org(anization)?('?s)? "
        r"(policy|constraint)|constraints/[a-z.]+",
        AccessDenied,
        "The organisation's policy that the message names forbids it in every zone. Ask its administrator to except "
        "this project.",
    ),
)
"""What an organisation forbids."""

NETWORK_AND_ACCOUNT = (
    Rule(
        r"compute\.(sub)?networks\.use",
        AccessDenied,
        "Give the role Compute Network User on the network's project to the connection's account and to the service "
        "agent of Cloud TPU.",
    ),
    Rule(
        r"no default subnetwork|does not have a subnetwork|no subnetwork|subnetworks/\S+ was not found"
        r"|referenced subnetwork resource cannot be found|custom subnet mode",
        None,
        "Name a subnetwork of the TPU's region in subnetwork, or create one",
        field="subnetwork",
    ),
    Rule(
        r"networks/\S+ was not found|has no network named|no default network\b"
        r"|referenced network resource cannot be found|network \S+ (does not exist|was not found|not found)",
        None,
        "Name a VPC network of the project in network (and its subnetwork in subnetwork), or create one",
        field="network",
    ),
    Rule(
        r"iam\.serviceAccountUser|iam\.serviceAccounts\.actAs|does not have access to service account",
        AccessDenied,
        "Give the connection's account the role Service Account User on the VM's account: the one in service_account, "
        "or the project's default one.",
    ),
    Rule(
        r"serviceAccounts?/\S+ .*was not found|service ?account .*(does not exist|is disabled|was deleted|not found)",
        None,
        "Name an active account in service_account; a project may be without a usable default account",
        field="service_account",
    ),
)
"""Network and account of the TPU VMs."""

OFFER = (
    Rule(
        r"provision TPU Node has been denied",
        NotOffered,
        "The old TPU Node architecture is gone; ask for a TPU VM.",
    ),
    Rule(
        r"Maximum number of \w+ requests per minute|Rate Limit Exceeded",
        RateLimited,
        "Wait a minute.",
        "RATE_LIMIT_EXCEEDED",
    ),
    Rule(
        r"no more capacity in the zone|Insufficient (reserved )?capacity|ZONE_RESOURCE_POOL_EXHAUSTED|stockout"
        r"|does not have enough resources available",
        StockOut,
        "Wait, or use another zone of the grant.",
    ),
    Rule(
        r"while in state PREEMPTED",
        TransientError,
        "The TPU was taken away while it came up; the next try asks again.",
    ),
    Rule(
        r"IN_USE_ADDRESSES",
        QuotaZero,
        "The region has no external address left. Set internal_ips, or ask for more addresses (they are billed).",
    ),
    Rule(
        r"Quota '[^']*LitepodServing[^']*'|Quota limit '[^']*LitepodServing[^']*'",
        QuotaExceeded,
        "Small v5e slices may draw on the serving quota. Delete unused TPUs and queued resources in the zone, "
        "or try another type of the grant.",
    ),
    Rule(
        r"Quota (limit )?'[^']*' (has been exceeded|exhausted)",
        QuotaExceeded,
        "Delete unused TPUs and queued resources in the zone: dead ones hold the quota until they are deleted.",
    ),
    Rule(
        r"Quota '[A-Z_\d]+' exceeded",
        QuotaExceeded,
        "A limit of Compute Engine that the message names is used up: delete what uses it, or ask for more on the "
        "quotas page of Google's console. What exceeds the grant is billed.",
    ),
    Rule(
        r"Queueing is not supported",
        NotOffered,
        "This type cannot be queued here; set provisioning to node.",
    ),
    Rule(
        r"provisioning model is not supported",
        NotOffered,
        "This tier is not offered for the type in this zone.",
    ),
    Rule(
        r"Reservation not found|target reservation must be specified",
        NotOffered,
        "The zone sells this type by reservation only. Use the spot tier or another zone.",
    ),
    Rule(
        r"invalid AcceleratorType|not be found in the zonal accelerator configurations",
        NotOffered,
        "The zone does not have this accelerator type.",
    ),
    Rule(
        r"(runtime_?version|TensorflowVersion)\W.*(invalid|cannot|not found)"
        r"|(invalid|cannot|not found).*(runtime_?version|TensorflowVersion)",
        NotOffered,
        "Leave runtime_version empty for the default of the type.",
    ),
    Rule(r"already exists|ALREADY_EXISTS", NameTaken, "A resource of this name exists; look at whose it is."),
)
"""What Cloud TPU offers, has free, and allows of it."""

RULES = (*TOKENS, *PROJECT, *POLICIES, *NETWORK_AND_ACCOUNT, *OFFER)
"""All of them, in the order in which they are tried."""
