# SPDX-License-Identifier: Apache-2.0
"""How a call of the Cloud TPU API ends: within bounds, repeated where that helps, with an error of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_tpu.core.tpu.api_errors import classify, classify_token
from airflow_tpu.errors import RateLimited, TPUError, TransientError

if TYPE_CHECKING:
    from google.api_core.exceptions import GoogleAPICallError


@dataclass(frozen=True)
class CallTiming:
    """Bounds of one call, in seconds: no method of Google's client has a timeout of its own.

    :param answer: how long one try may take.
    :param retry: over which a repeatable call is tried again.
    :param pause: before the first repetition; it doubles up to ten seconds.
    """

    answer: float = 30.0
    retry: float = 120.0
    pause: float = 0.5


def retries(timing: CallTiming) -> Any:
    """How Google's client repeats a call by itself: what passes within seconds, and nothing else."""
    from google.api_core import exceptions
    from google.api_core.retry import AsyncRetry, if_exception_type

    stumbles = if_exception_type(
        exceptions.DeadlineExceeded,
        exceptions.Aborted,
        exceptions.InternalServerError,
        # A token that expired on its way: google-auth fetches a new one for the next try.
        exceptions.Unauthenticated,
    )

    def transient(error: Exception) -> bool:
        if isinstance(error, exceptions.ResourceExhausted):
            # A limit of requests per minute passes; one of chips, which has the same code, does not.
            return isinstance(_classified(error, ""), RateLimited)
        if isinstance(error, exceptions.ServiceUnavailable):
            # The code of credentials that are refused before the call is sent, too.
            return isinstance(_classified(error, ""), TransientError)
        return bool(stumbles(error))

    return AsyncRetry(predicate=transient, initial=timing.pause, maximum=10.0, multiplier=2.0, timeout=timing.retry)


def refused_tokens(timing: CallTiming) -> Any:
    """How a call is repeated that must not be carried out twice: only where Google has not even let it in."""
    from google.api_core import exceptions
    from google.api_core.retry import AsyncRetry, if_exception_type

    refused = if_exception_type(exceptions.Unauthenticated)
    return AsyncRetry(predicate=refused, initial=timing.pause, maximum=10.0, multiplier=2.0, timeout=timing.retry)


def is_answer(error: BaseException | None) -> bool:
    """Whether the API has answered a call with an error, and did not just fail to answer."""
    from google.api_core import exceptions

    silence = exceptions.ServiceUnavailable | exceptions.DeadlineExceeded | exceptions.Aborted | exceptions.Cancelled
    return isinstance(error, exceptions.GoogleAPICallError) and not isinstance(error, silence)


class translated:
    """Context manager that turns Google's errors into ours.

    :param resource: what the call is about, for the message.
    :raises TPUError: the leaf of our tree that the error is.
    """

    def __init__(self, resource: str) -> None:
        self.resource = resource

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, _trace: object) -> None:
        from google.api_core import exceptions
        from google.auth.exceptions import GoogleAuthError, TransportError

        if isinstance(error, exceptions.RetryError):
            error = error.cause or error
        if isinstance(error, exceptions.GoogleAPICallError):
            raise _classified(error, self.resource) from error
        if isinstance(error, GoogleAuthError):
            passing = error.retryable or isinstance(error, TransportError)
            raise classify_token(str(error), self.resource, passing) from error
        if isinstance(error, exceptions.RetryError):
            raise TransientError(f"{self.resource}: {error}") from error


def _classified(error: GoogleAPICallError, resource: str) -> TPUError:
    status = error.grpc_status_code
    code = int(status.value[0]) if status is not None else 2
    return classify(code, error.message, str(error.reason or ""), resource, details_in_words(error.details))


def details_in_words(details: Iterable[Any]) -> str:
    """What the typed details of an answer say, as Google words it: often the only text that names the field.

    :param details: messages of ``google.rpc``, or ``Any`` that holds one; others say nothing to a person.
    """
    from google.rpc import error_details_pb2

    kinds = [getattr(error_details_pb2, name) for name in _IN_WORDS]
    found: list[str] = []
    for detail in details:
        for kind in kinds:
            if isinstance(detail, kind):
                found += _IN_WORDS[kind.DESCRIPTOR.name](detail)
            elif getattr(detail, "type_url", "").endswith(kind.DESCRIPTOR.full_name):
                found += _IN_WORDS[kind.DESCRIPTOR.name](kind.FromString(detail.value))
    return "; ".join(dict.fromkeys(text for text in found if text.strip(": ")))


def _violations(detail: Any) -> list[str]:
    return [f"{item.subject}: {item.description}" for item in detail.violations]


_LIMIT = "quota_limit_value"

_IN_WORDS: Mapping[str, Callable[[Any], list[str]]] = {
    "BadRequest": lambda detail: [f"{item.field}: {item.description}" for item in detail.field_violations],
    "QuotaFailure": _violations,
    "PreconditionFailure": _violations,
    "DebugInfo": lambda detail: [detail.detail],
    "LocalizedMessage": lambda detail: [detail.message],
    "ErrorInfo": lambda detail: [f"quota limit {detail.metadata[_LIMIT]}"] if _LIMIT in detail.metadata else [],
    "Help": lambda detail: [f"{link.description}: {link.url}" for link in detail.links],
}
