"""From an error of the Cloud TPU API to the leaf of our tree that says whether trying again helps.

The class is never derived from one word: "quota" appears in stock-outs and "not found" in a missing reservation.
Rules are tried in order, text and reason first, the bare code last. The texts were collected from public reports;
Google documents none of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from airflow_tpu.errors import (
    AccessDenied,
    CloudError,
    ConfigError,
    Fault,
    NameTaken,
    NotOffered,
    QuotaExceeded,
    QuotaZero,
    RateLimited,
    ResourceNotFound,
    StockOut,
    TPUError,
    TransientError,
)

_EID = re.compile(r"\s*\[EID:\s*0x[0-9a-fA-F]+\]")

# REST answers and some wrappers carry HTTP status; 409 is both "exists" and "in flight", its text decides.
_GRPC_OF_HTTP = {
    400: 3,
    401: 16,
    403: 7,
    404: 5,
    409: 10,
    412: 9,
    429: 8,
    499: 1,
    500: 13,
    501: 12,
    502: 14,
    503: 14,
    504: 4,
}


@dataclass(frozen=True)
class _Rule:
    pattern: str
    leaf: type[CloudError]
    advice: str
    reason: str = ""

    def fits(self, text: str, reason: str) -> bool:
        if self.reason and reason == self.reason:
            return True
        return bool(self.pattern) and re.search(self.pattern, text, re.IGNORECASE) is not None


_RULES = (
    _Rule(
        r"API has not been used in project .* or it is disabled",
        AccessDenied,
        "Switch the Cloud TPU API on for this project, wait a few minutes and trigger again.",
        "SERVICE_DISABLED",
    ),
    _Rule(
        r"Permission denied on '?locations/",
        AccessDenied,
        "The zone is not open to this project, so it is not in the grant. Choose a granted zone.",
        "LOCATION_POLICY_VIOLATED",
    ),
    _Rule(
        r"free-trial billing account",
        AccessDenied,
        "Upgrade the billing account (the credit stays); a free-trial account cannot have TPUs.",
    ),
    _Rule(
        r"invalid_grant|reauthentication failed",
        AccessDenied,
        "The credentials have expired. Renew those of the google_cloud_platform connection.",
    ),
    _Rule(
        r"Constraint .*violated|gcp\.resourceLocations",
        AccessDenied,
        "A policy of the organisation forbids it. Ask its administrator or use another zone.",
    ),
    _Rule(
        r"provision TPU Node has been denied",
        NotOffered,
        "The old TPU Node architecture is gone; ask for a TPU VM.",
    ),
    _Rule(
        r"Maximum number of \w+ requests per minute|Rate Limit Exceeded",
        RateLimited,
        "Wait a minute.",
        "RATE_LIMIT_EXCEEDED",
    ),
    _Rule(
        r"no more capacity in the zone|Insufficient (reserved )?capacity|ZONE_RESOURCE_POOL_EXHAUSTED|stockout",
        StockOut,
        "Wait, or use another zone of the grant.",
    ),
    _Rule(
        r"IN_USE_ADDRESSES",
        QuotaZero,
        "The region has no external address left. Set internal_ips, or ask for more addresses (they are billed).",
    ),
    _Rule(
        r"Quota.*\bLimit:? 0(?![\d.])",
        QuotaZero,
        "The project has no quota of this name, so this is not in the grant.",
    ),
    _Rule(
        r"Quota '[^']*LitepodServing[^']*'|Quota limit '[^']*LitepodServing[^']*'",
        QuotaExceeded,
        "Small v5e slices may draw on the serving quota. Delete unused TPUs and queued resources in the zone, "
        "or try another type of the grant.",
    ),
    _Rule(
        r"Quota (limit )?'[^']*' (has been exceeded|exhausted)",
        QuotaExceeded,
        "Delete unused TPUs and queued resources in the zone: dead ones hold the quota until they are deleted.",
    ),
    _Rule(
        r"Queueing is not supported",
        NotOffered,
        "This type cannot be queued here; set provisioning to node.",
    ),
    _Rule(
        r"provisioning model is not supported",
        NotOffered,
        "This tier is not offered for the type in this zone.",
    ),
    _Rule(
        r"Reservation not found|target reservation must be specified",
        NotOffered,
        "The zone sells this type by reservation only. Use the spot tier or another zone.",
    ),
    _Rule(
        r"invalid AcceleratorType|not be found in the zonal accelerator configurations",
        NotOffered,
        "The zone does not have this accelerator type.",
    ),
    _Rule(
        r"(runtime_?version|TensorflowVersion)\W.*(invalid|cannot|not found)"
        r"|(invalid|cannot|not found).*(runtime_?version|TensorflowVersion)",
        NotOffered,
        "Leave runtime_version empty for the default of the type.",
    ),
    _Rule(r"already exists|ALREADY_EXISTS", NameTaken, "A resource of this name exists; look at whose it is."),
)

_NO_SUBNET = re.compile(r"no default subnetwork|does not have a subnetwork|no subnetwork", re.IGNORECASE)

_DENIED = (AccessDenied, "Look at the roles of the account in the connection.")
_INVALID = (NotOffered, "The request itself is refused, so the same request will be again.")
_STUMBLE = (TransientError, "The outcome is not known: the call may have been carried out.")
_BY_CODE: dict[int, tuple[type[CloudError], str]] = {
    3: _INVALID,
    5: (ResourceNotFound, "The API does not know it; it uses no chips."),
    6: (NameTaken, "A resource of this name exists; look at whose it is."),
    7: _DENIED,
    8: (RateLimited, "Something is exhausted and the text does not say what; wait and try again."),
    11: _INVALID,
    12: _INVALID,
    13: (
        TransientError,
        "Google's side stumbled; if that continues, it can hide a stock-out or the external address limit.",
    ),
    16: _DENIED,
}


def classify(code: int, message: str, reason: str = "", resource: str = "", details: str = "") -> TPUError:
    """The error to raise for an answer of the API, from a call or from inside a finished operation.

    :param code: google.rpc code, or HTTP status from 400 on.
    :param message: the text, kept whole with its ``[EID: ...]``, which Google's support asks for.
    :param reason: ``ErrorInfo.reason`` if there is one.
    :param resource: name of the node or queued resource.
    :param details: what the typed details of the answer say beyond that, shown as they are.
    :return: an instance of a leaf; :class:`airflow_tpu.errors.TransientError` for an unknown one.
    """
    text = _EID.sub("", message)
    code = _GRPC_OF_HTTP.get(code, code)
    shown = f" [{details}]" if details else ""
    if _NO_SUBNET.search(text):
        return ConfigError([Fault("subnetwork", "", f"{message.strip()}{shown}")], resource or "the network")
    leaf, advice = _judge(code, text, reason)
    subject = f"{resource}: " if resource else ""
    return leaf(
        f"{subject}{message.strip() or 'no text'}{shown} (code {code}{f', {reason}' if reason else ''}). {advice}",
        reason,
    )


def _judge(code: int, text: str, reason: str) -> tuple[type[CloudError], str]:
    for rule in _RULES:
        if rule.fits(text, reason):
            return rule.leaf, rule.advice
    return _BY_CODE.get(code, _STUMBLE)
