"""Storage contract: signed URLs and the XML interface. Runs against the local server or a real bucket."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest
from google.cloud.storage._signing import generate_signed_url_v4

from tests.contract.gcs_target import Target

pytest_plugins = ("tests.contract.gcs_fixtures",)


def signed(target: Target, name: str, method: str, **options: object) -> str:
    """Return a V4 signed URL that is good for five minutes."""
    blob, lifetime = target.bucket.blob(name), timedelta(minutes=5)
    where: dict[str, Any] = {"credentials": target.signer, "api_access_endpoint": target.url}
    return str(blob.generate_signed_url(version="v4", expiration=lifetime, method=method, **where, **options))


def test_signed_url_reads(target: Target) -> None:
    """A signed GET needs no credentials."""
    blob = target.put(b"for you", "a b/é#?")
    reply = target.http.get(signed(target, blob.name, "GET"))
    assert (reply.status_code, reply.content) == (200, b"for you")


def test_signed_url_writes(target: Target) -> None:
    """A signed PUT stores content with the type it was signed for."""
    name = target.name()
    url = signed(target, name, "PUT", content_type="text/x-log")
    assert target.http.put(url, data=b"line", headers={"Content-Type": "text/x-log"}).status_code == 200
    seen = target.bucket.get_blob(name)
    assert (seen.content_type, seen.download_as_bytes()) == ("text/x-log", b"line")


def test_signed_resumable_session(target: Target) -> None:
    """A signed POST opens a resumable session."""
    name = target.name()
    url = signed(target, name, "RESUMABLE")
    start = target.http.post(url, headers={"x-goog-resumable": "start"})
    assert start.status_code == 201
    assert target.http.put(start.headers["Location"], data=b"resumed").status_code == 200
    assert target.bucket.blob(name).download_as_bytes() == b"resumed"


def test_expired_signed_url_is_refused(target: Target) -> None:
    """A URL that was signed for five minutes in 2020 is a 400 ExpiredToken."""
    blob = target.put()
    url = generate_signed_url_v4(
        target.signer,
        resource=f"/{target.bucket.name}/{quote(blob.name)}",
        expiration=timedelta(minutes=5),
        api_access_endpoint=target.url,
        _request_timestamp="20200101T000000Z",
    )
    reply = target.http.get(url)
    assert (reply.status_code, "ExpiredToken" in reply.text) == (400, True)


def test_signed_url_without_its_header_is_refused(target: Target) -> None:
    """A header that was signed must be sent."""
    name = target.name()
    url = signed(target, name, "PUT", headers={"x-goog-meta-run": "a"})
    assert target.http.put(url, data=b"x").status_code == 403
    assert not target.bucket.blob(name).exists()


def test_xml_put_and_get(target: Target) -> None:
    """The XML interface stores headers as metadata and gives them back."""
    url = f"{target.url}/{target.bucket.name}/{quote(target.name('x y'))}"
    sent = {"Content-Type": "text/plain", "x-goog-meta-run": "a", "Cache-Control": "no-store"}
    assert target.http.put(url, data=b"by xml", headers=sent).status_code == 200
    reply = target.http.get(url)
    assert reply.content == b"by xml"
    assert {name: reply.headers[name] for name in sent} == sent
    assert target.http.head(url).headers["Content-Length"] == "6"


def test_xml_conditions(target: Target) -> None:
    """The XML interface honours the generation header."""
    url = f"{target.url}/{target.bucket.name}/{quote(target.name())}"
    absent = {"x-goog-if-generation-match": "0"}
    assert [target.http.put(url, data=b"1", headers=absent).status_code for _ in range(2)] == [200, 412]


@pytest.mark.parametrize("method", ["get", "head", "delete"])
def test_xml_missing_object(target: Target, method: str) -> None:
    """What is not there is a 404 by the XML interface too."""
    url = f"{target.url}/{target.bucket.name}/{quote(target.name())}"
    assert getattr(target.http, method)(url).status_code == 404


def test_xml_wrong_hash_is_refused(target: Target) -> None:
    """Content that does not match Content-MD5 is a 400 with an XML body, and nothing is stored."""
    name = target.name()
    url = f"{target.url}/{target.bucket.name}/{quote(name)}"
    reply = target.http.put(url, data=b"x", headers={"Content-MD5": "1B2M2Y8AsgTpgAmY7PhCfg=="})
    assert (reply.status_code, "<Code>BadDigest</Code>" in reply.text) == (400, True)
    assert not target.bucket.blob(name).exists()
