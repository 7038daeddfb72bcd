# SPDX-License-Identifier: Apache-2.0
"""What the bucket refuses: the error names the object, the right and the role."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import requests
from google.api_core.exceptions import (
    Forbidden,
    GoogleAPICallError,
    NotFound,
    RetryError,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
)

from airflow_tpu.errors import AccessDenied, ConfigError, RateLimited, Retry, TPUError, TransientError
from airflow_tpu.hooks.refusals import refusals
from tests.airflow_tpu.cloud_env import BUCKET, KEY, CloudEnv
from tests.airflow_tpu.core.made_ledger import opened

URI = "gs://bucket/airflow-tpu/leases/x.json"

CALLS: dict[str, tuple[str, Callable[[CloudEnv], object]]] = {
    "take a lease": ("objects.get", lambda env: env.lease()),
    "list leases": ("objects.list", lambda env: env.runs.all()),
    "release a lease": ("objects.delete", lambda env: env.runs.release(KEY)),
    "open a record": ("objects.create", lambda env: env.ledger.open(opened())),
    "read the ledger": ("objects.list", lambda env: env.ledger.events(KEY)),
    "reserve": ("objects.get", lambda env: env.reservations.release(KEY.digest)),
}


@pytest.mark.parametrize("what", CALLS)
def test_bucket_that_refuses_lease_or_ledger(env: CloudEnv, what: str) -> None:
    """Whatever is done with lease, reservation and ledger: the error is ours, final, and names right and role."""
    right, call = CALLS[what]
    env.cloud.add_fault("gcs.request", {"bucket": BUCKET}, action="403", times=10)
    words = f"storage.{right}' denied .*lacks storage.{right}: give it roles/storage.objectAdmin on gs://{BUCKET},"
    with pytest.raises(AccessDenied, match=words) as caught:
        call(env)
    assert str(caught.value).startswith(f"gs://{BUCKET}/airflow-tpu")
    assert caught.value.retry is Retry.NEVER


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            Forbidden("x does not have storage.buckets.get access"),
            "give it roles/storage.legacyBucketReader on gs://bucket,",
        ),
        (Forbidden("Access denied."), "lacks the right: give it roles/storage.objectAdmin on gs://bucket,"),
        (Forbidden("Object is subject to bucket's retention policy and cannot be deleted"), "No role lifts that"),
        (Unauthorized("Invalid Credentials"), "are not accepted: renew them"),
    ],
)
def test_refusal_says_what_to_do(error: GoogleAPICallError, words: str) -> None:
    """Only a missing right has a role; Google's own text stands in each of them."""
    with pytest.raises(AccessDenied, match=words) as caught, refusals(URI):
        raise error
    assert str(caught.value).startswith(f"{URI}: {error.message} (HTTP {error.code})")


def test_other_errors_pass() -> None:
    """What is no refusal stays as it is."""
    with pytest.raises(NotFound), refusals(URI):
        raise NotFound("gone")


@pytest.mark.parametrize(
    ("error", "kind", "retry"),
    [
        (NotFound("The specified bucket does not exist."), ConfigError, Retry.NEVER),
        (TooManyRequests("slow down"), RateLimited, Retry.LATER),
        (ServiceUnavailable("try later"), TransientError, Retry.SOON),
        (RetryError("Timeout of 120.0s exceeded", ServiceUnavailable("x")), TransientError, Retry.SOON),
        (requests.exceptions.ConnectionError("connection refused"), TransientError, Retry.SOON),
    ],
)
def test_what_else_stops_a_call_is_ours(error: Exception, kind: type[TPUError], retry: Retry) -> None:
    """A bucket that is missing, a limit and an outage each have a class that says what helps."""
    with pytest.raises(kind, match="gs://bucket") as caught, refusals(URI):
        raise error
    assert caught.value.retry is retry
