# SPDX-License-Identifier: Apache-2.0
"""From an error of Google's to the leaf of our tree that says whether trying again helps.

The class is never derived from one word: "quota" appears in stock-outs and "not found" in a missing reservation.
Rules are tried in order, text and reason first, the bare code last.
"""

from __future__ import annotations

import re

from airflow_tpu.core.tpu.api_error_rules import RULES, Rule
from airflow_tpu.errors import (
    AccessDenied,
    ConfigError,
    Fault,
    NameTaken,
    NotOffered,
    QuotaZero,
    RateLimited,
    ResourceNotFound,
    TPUError,
    TransientError,
)

_EID = re.compile(r"\s*\[EID:\s*0x[0-9a-fA-F]+\]")

# The words of gRPC when credentials raise an error: https://github.com/grpc/grpc/issues/19186
_BEFORE_SENDING = "Getting metadata from plugin failed"

# Failures of the token endpoint and the metadata server that pass, as google-auth words them.
_PASSING = re.compile(
    r"internal_failure|server_error|temporarily_unavailable|\"code\": ?(408|429|5\d\d)|status:? (408|429|5\d\d)"
    r"|Metadata server unavailable|ConnectionPool|connection (aborted|broken|refused|reset)|timed out|IncompleteRead"
    r"|name resolution|bad gateway|service unavailable|internal server error",
    re.IGNORECASE,
)

# What fails between Airflow and Google's token endpoint at every try, in the words of a failed connection.
_LASTING = re.compile("certificate.verify.failed|Proxy Authentication Required", re.IGNORECASE)

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

_DENIED = Rule("", AccessDenied, "Look at the roles of the account in the connection.")
_UNKNOWN = Rule(
    "", AccessDenied, "The credentials of the google_cloud_platform connection are not accepted: renew them."
)
_INVALID = Rule("", NotOffered, "The request itself is refused, so the same request will be again.")
_STUMBLE = Rule("", TransientError, "The outcome is not known: the call may have been carried out.")
_BY_CODE = {
    3: _INVALID,
    5: Rule("", ResourceNotFound, "The API does not know it; it uses no chips."),
    6: Rule("", NameTaken, "A resource of this name exists; look at whose it is."),
    7: _DENIED,
    8: Rule("", RateLimited, "Something is exhausted and the text does not say what; wait and try again."),
    11: _INVALID,
    12: _INVALID,
    13: Rule(
        "",
        TransientError,
        "Google's side stumbled; if that continues, it can hide a stock-out or the external address limit.",
    ),
    16: _UNKNOWN,
}
_GIVEN_UP = Rule(
    "",
    TransientError,
    "Google has given the create up and does not say why; it can hide a stock-out, the external address limit, or a "
    "network or an account that the TPU VM may not use. If it fails like this again, it will not work as asked: "
    "check network, subnetwork and service_account, set internal_ips, or take another zone.",
)
# Before every rule: a quota of zero comes with any reason, RATE_LIMIT_EXCEEDED too, and may stand in the details alone.
_ZERO_QUOTA = re.compile(
    r"quota.*\blimit(?:[ _]value)?['\"]?:? ?['\"]?0(?:\.0+)?(?!\d|\.\d)", re.IGNORECASE | re.DOTALL
)
_NO_QUOTA = Rule("", QuotaZero, "The project has no quota of this name, so this is not in the grant.")
_ADDRESSES = "IN_USE_ADDRESSES"
_TOKEN_LATER = Rule("", TransientError, "Google gave no access token for the moment, so the call was not sent.")
_TOKEN_REFUSED = Rule(
    "", AccessDenied, "Google gave no access token. Correct the credentials of the google_cloud_platform connection."
)


def classify(
    code: int, message: str, reason: str = "", resource: str = "", details: str = "", ended: bool = False
) -> TPUError:
    """The error to raise for an answer of the API, from a call or from inside a finished operation.

    :param code: google.rpc code, or HTTP status from 400 on.
    :param message: the text, kept whole with its ``[EID: ...]``, which Google's support asks for.
    :param reason: ``ErrorInfo.reason`` if there is one.
    :param resource: name of the node or queued resource.
    :param details: what the typed details of the answer say beyond that, shown as they are.
    :param ended: the error ended an operation or a queued resource that had been accepted: its outcome is known.
    :return: an instance of a leaf; :class:`airflow_tpu.errors.TransientError` for an unknown one.
    """
    text = _EID.sub("", message)
    code = _GRPC_OF_HTTP.get(code, code)
    if _BEFORE_SENDING in text:
        return classify_token(message, resource)
    said = f"{message.strip() or 'no text'} [{details}]" if details else message
    is_zero = _ADDRESSES not in text and _ZERO_QUOTA.search(f"{text}\n{details}")
    rule = _NO_QUOTA if is_zero else _find(text, reason) or _BY_CODE.get(code, _STUMBLE)
    if ended and rule in (_STUMBLE, _BY_CODE[13]):
        rule = _GIVEN_UP
    return _error(rule, f"code {code}", said, reason, resource)


def classify_token(message: str, resource: str = "", passing: bool = False) -> TPUError:
    """The error to raise when credentials give no access token: a call with them was not sent.

    Inside gRPC the error of google-auth arrives as UNAVAILABLE with its text, whatever it was.

    :param message: the text of google-auth.
    :param resource: what the call was about.
    :param passing: google-auth says that another try may help.
    """
    if passing or (_PASSING.search(message) and not _LASTING.search(message)):
        return _error(_TOKEN_LATER, "no access token", message, "", resource)
    return _error(_find(message, "") or _TOKEN_REFUSED, "no access token", message, "", resource)


def known_refusal(message: str, reason: str, resource: str) -> AccessDenied | None:
    """The error for a refusal of another service of Google's whose text is known, None for all other texts.

    :param resource: what was asked for.
    """
    rule = _find(message, reason)
    if rule is None or rule.leaf is not AccessDenied:
        return None
    return AccessDenied(_words(rule, "refused", message, reason, resource), reason)


def _find(text: str, reason: str) -> Rule | None:
    return next((rule for rule in RULES if rule.fits(text, reason)), None)


def _error(rule: Rule, code: str, message: str, reason: str, resource: str) -> TPUError:
    if rule.leaf is None:
        fault = Fault(rule.field, "", f"{message.strip().rstrip('.')}. {rule.advice}")
        return ConfigError([fault], resource or "what the TPU VM needs")
    return rule.leaf(_words(rule, code, message, reason, resource), reason)


def _words(rule: Rule, code: str, message: str, reason: str, resource: str) -> str:
    subject = f"{resource}: " if resource else ""
    return f"{subject}{message.strip() or 'no text'} ({code}{f', {reason}' if reason else ''}). {rule.advice}"
