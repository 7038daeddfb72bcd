# SPDX-License-Identifier: Apache-2.0
"""Cloud Storage through the product's session: credentials that are refused, projects and organisations that forbid."""

from __future__ import annotations

from typing import Any

import pytest
from google.api_core.exceptions import Forbidden
from google.auth.credentials import Credentials
from google.auth.exceptions import RefreshError, TransportError
from google.cloud.storage import Client
from requests.exceptions import ProxyError

from airflow_tpu import errors
from airflow_tpu.clients.storage_session import StorageSession
from localcloud.rules.project import ProjectRules
from tests.airflow_tpu.cloud_env import BUCKET, CloudEnv
from tests.airflow_tpu.conftest import Open

VPC = "Request is prohibited by organization's policy. vpcServiceControlsUniqueIdentifier: AbC"
UNPAID = "The billing account for the owning project is disabled in state absent"


class Refused(Credentials):
    """Credentials for which Google gives no access token.

    :param error: what google-auth says then.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Google's own
        self.error = error

    def refresh(self, request: Any) -> None:
        """Ask for a token."""
        raise self.error


@pytest.mark.parametrize(
    ("error", "leaf", "advice"),
    [
        (RefreshError("Unable to acquire impersonated credentials", "403"), errors.AccessDenied, "Token Creator"),
        (RefreshError("Reauthentication is needed."), errors.AccessDenied, "application-default login"),
        (RefreshError("invalid_client: The OAuth client was deleted."), errors.AccessDenied, "another one"),
        (RefreshError("something new"), errors.AccessDenied, "Correct the credentials"),
        (RefreshError("internal_failure: None", retryable=True), errors.TransientError, "for the moment"),
        (RefreshError("something new", retryable=True), errors.TransientError, "for the moment"),
        (TransportError("(Caused by SSLError('[SSL: CERTIFICATE_VERIFY_FAILED]'))"), errors.AccessDenied, "CA_BUNDLE"),
        (ProxyError("407 Proxy Authentication Required"), errors.AccessDenied, "HTTPS_PROXY"),
    ],
)
def test_refused_credentials_are_an_error_of_ours(
    env: CloudEnv, error: Exception, leaf: type[errors.TPUError], advice: str
) -> None:
    """What google-auth calls a RefreshError has the class that says whether another try helps, and the advice."""
    credentials = Refused(error)
    url = env.cloud.endpoints.storage_api_endpoint
    client = Client(
        "p",
        credentials,
        client_options={"api_endpoint": url},
        _http=StorageSession(credentials),  # type: ignore[no-untyped-call]
    )
    with pytest.raises(leaf, match=advice) as caught:
        client.get_bucket(BUCKET)
    assert type(caught.value) is leaf


@pytest.mark.parametrize(
    ("status", "reason", "message", "advice"),
    [
        (403, "forbidden", VPC, "perimeter"),
        (403, "accountDisabled", UNPAID, "open billing account"),
        (403, "USER_PROJECT_DENIED", "denied", "Service Usage Consumer"),
    ],
)
def test_what_no_other_try_cures_is_told_with_advice(
    env: CloudEnv, status: int, reason: str, message: str, advice: str
) -> None:
    """Google's own text is kept, the object is named, and a retry policy sees that no other try helps."""
    said: dict[str, Any] = {"status": status, "reason": reason, "message": message}
    env.cloud.add_fault("gcs.request", {"object": "*a.json"}, action="refuse", **said)
    with pytest.raises(errors.AccessDenied, match=advice) as caught:
        env.storage.read_json(f"gs://{BUCKET}/a.json")
    assert message in str(caught.value)
    assert f"{BUCKET}/o/a.json" in str(caught.value)


@pytest.mark.parametrize(
    ("rules", "advice"),
    [(ProjectRules(perimeter=True), "perimeter"), (ProjectRules(billing=False), "open billing account")],
    ids=["perimeter", "billing"],
)
def test_a_project_that_keeps_callers_out_keeps_its_buckets_too(
    open_env: Open, rules: ProjectRules, advice: str
) -> None:
    """What is read, written and listed first of a run is refused for good, with the advice that helps."""
    env = open_env(project=rules)
    for call in (
        lambda: env.storage.read_json(f"gs://{BUCKET}/a.json"),
        lambda: env.storage.write_json(f"gs://{BUCKET}/a.json", {}),
        lambda: env.storage.listing(f"gs://{BUCKET}/"),
        lambda: env.storage.read_start(f"gs://{BUCKET}/a.json", 10),
    ):
        with pytest.raises(errors.AccessDenied, match=advice):
            call()


def test_a_bucket_whose_readers_pay_is_named(env: CloudEnv) -> None:
    """Reads, writes and listings of a Requester Pays bucket fail for good; its metadata cannot be read either."""
    bucket = env.storage.get_conn().bucket(BUCKET)
    bucket.requester_pays = True
    bucket.patch()
    for call in (
        lambda: env.storage.read_json(f"gs://{BUCKET}/a.json"),
        lambda: env.storage.write_json(f"gs://{BUCKET}/a.json", {}),
        lambda: env.storage.listing(f"gs://{BUCKET}/"),
        lambda: env.storage.facts.location(BUCKET),
    ):
        with pytest.raises(errors.AccessDenied, match="Switch Requester Pays off"):
            call()


def test_a_plain_denial_stays_googles_error(env: CloudEnv) -> None:
    """The session leaves a 403 without further meaning to its callers: some go on without what they may not read."""
    env.cloud.add_fault("gcs.request", {"object": "*a.json"}, action="403")
    with pytest.raises(Forbidden):
        env.storage.get_conn().bucket(BUCKET).blob("a.json").download_as_bytes()
