# SPDX-License-Identifier: Apache-2.0
"""Refusals of Cloud Storage as errors of ours: which right is missing, on which bucket, and the role that gives it.

Refused credentials, policies of an organisation, billing and the like never come here: the session under the client
(:mod:`airflow_tpu.clients.storage_session`) has told them apart already.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from airflow_tpu.errors import AccessDenied, ConfigError, Fault, RateLimited, TransientError

Method = TypeVar("Method", bound=Callable[..., Any])

OBJECT_ROLE = "roles/storage.objectAdmin"
BUCKET_ROLE = "roles/storage.legacyBucketReader"
"""The two roles that docs/google.md asks for on the bucket of the grant."""

_NO_BUCKET = "bucket does not exist"
_RIGHT = re.compile(r"storage\.(?:objects|buckets|multipartUploads|folders)\.\w+")
# Refusals of an object itself, with the same status, that no role lifts.
_KEPT = re.compile(r"retention|hold", re.IGNORECASE)


@contextmanager
def refusals(uri: str) -> Iterator[None]:
    """Raise for a refusal of the bucket an error that says what to do.

    :param uri: what is read or written.
    :raises AccessDenied: the account may not do that.
    :raises ConfigError: there is no such bucket.
    :raises RateLimited: too many requests, also after those that Google's client has repeated.
    :raises TransientError: Cloud Storage, or the server of its access tokens, cannot be reached for the moment.
    """
    from google.api_core.exceptions import Forbidden, NotFound, RetryError, ServerError, TooManyRequests, Unauthorized
    from google.auth.exceptions import TransportError
    from requests.exceptions import RequestException

    try:
        yield
    except (Forbidden, Unauthorized) as error:
        advice = _advice(uri, int(error.code or 0), error.message)
        raise AccessDenied(f"{uri}: {error.message} (HTTP {error.code}). {advice}") from error
    except NotFound as error:
        if _NO_BUCKET not in error.message:
            raise
        bucket = uri.split("/")[2]
        raise ConfigError([Fault("bucket", bucket, "names a bucket that does not exist")], uri) from error
    except TooManyRequests as error:
        raise RateLimited(f"{uri}: {error.message} (HTTP 429)") from error
    except (ServerError, RetryError, RequestException, TransportError) as error:
        raise TransientError(f"{uri}: Cloud Storage does not answer as it should: {error}") from error


def typed_refusals(method: Method) -> Method:
    """Decorate a method of a hook whose first argument is a URI with :func:`refusals`."""

    @functools.wraps(method)
    def called(self: object, uri: str, *arguments: Any, **named: Any) -> Any:
        with refusals(uri):
            return method(self, uri, *arguments, **named)

    return cast(Method, called)


def _advice(uri: str, status: int, message: str) -> str:
    if status == 401:
        return "The credentials of the google_cloud_platform connection are not accepted: renew them."
    right = _RIGHT.search(message)
    if right is None and _KEPT.search(message):
        return "No role lifts that: the object is kept until its retention or hold ends."
    role = BUCKET_ROLE if right is not None and right[0].startswith("storage.buckets.") else OBJECT_ROLE
    bucket, missing = "/".join(uri.split("/")[:3]), right[0] if right else "the right"
    return (
        f"The account of the google_cloud_platform connection lacks {missing}: give it {role} on {bucket}, then clear "
        "the task."
    )
