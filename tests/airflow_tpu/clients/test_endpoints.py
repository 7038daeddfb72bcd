# SPDX-License-Identifier: Apache-2.0
"""What a connection says about endpoints, read strictly."""

from __future__ import annotations

import pytest

from airflow_tpu.clients.endpoints import ConnectionOptions, parse_options
from airflow_tpu.errors import ConfigError

LOCAL = {
    "is_anonymous": True,
    "tpu_api_endpoint": "127.0.0.1:8085",
    "tpu_insecure": "true",
    "storage_api_endpoint": "http://127.0.0.1:8086",
    "ssh_port": "2222",
}


def test_empty_extra_means_google() -> None:
    """Without our keys everything goes to Google, with TLS and credentials, SSH on port 22."""
    assert parse_options(dict[str, object]().get) == ConnectionOptions()


def test_local_endpoints_are_read() -> None:
    """Text and JSON values of the extra mean the same."""
    expected = ConnectionOptions("127.0.0.1:8085", True, "http://127.0.0.1:8086", 2222, True)
    assert parse_options(LOCAL.get) == expected


@pytest.mark.parametrize("word", ["false", "False", "0", "no", "off", ""])
def test_the_word_false_is_false(word: str) -> None:
    """A URI-style extra turns false into text; it must not switch plaintext on."""
    assert parse_options({"tpu_insecure": word, "is_anonymous": word}.get) == ConnectionOptions()


def test_all_faults_are_named_at_once() -> None:
    """A wrong boolean, a wrong port and a public plaintext endpoint are three faults of one error."""
    extra = {
        "is_anonymous": "maybe",
        "ssh_port": "70000",
        "tpu_insecure": "yes",
        "tpu_api_endpoint": "tpu.example.com:443",
    }
    with pytest.raises(ConfigError) as caught:
        parse_options(extra.get)
    assert {fault.field for fault in caught.value.faults} == {"is_anonymous", "ssh_port", "tpu_api_endpoint"}


@pytest.mark.parametrize("host", ["127.0.0.9:1", "10.1.2.3:1", "[::1]:1", "localhost:1", "localcloud:1"])
def test_near_and_allowed_hosts_may_be_plain(host: str) -> None:
    """Loopback, private and allow-listed hosts may be reached without TLS."""
    extra = {"tpu_insecure": True, "tpu_api_endpoint": host}
    assert parse_options(extra.get, frozenset({"localcloud"})).tpu_insecure


def test_anonymous_access_to_google_is_refused() -> None:
    """Anonymous credentials without a local endpoint would ask Google for nothing it answers."""
    with pytest.raises(ConfigError):
        parse_options({"is_anonymous": "true"}.get)


@pytest.mark.parametrize("url", ["http://storage.example.com", "http://10.1.2.3:4443", "HTTP://127.0.0.1:4443"])
def test_storage_without_tls_gets_no_token(url: str) -> None:
    """Google's client sends its token to any endpoint: without TLS that is refused on every host, near ones too."""
    with pytest.raises(ConfigError, match=r"storage_api_endpoint = .* would travel in the clear; set is_anonymous"):
        parse_options({"storage_api_endpoint": url}.get, frozenset({"storage.example.com"}))


def test_storage_with_tls_may_be_anywhere() -> None:
    """A private endpoint of Cloud Storage is reached with the token of the account."""
    url = "https://storage-xyz.p.googleapis.com"
    assert parse_options({"storage_api_endpoint": url}.get).storage_api_endpoint == url


@pytest.mark.parametrize("text", ["storage.example.com:4443", "localhost:4443", "ftp://127.0.0.1", "http://"])
def test_what_is_no_url_of_a_storage(text: str) -> None:
    """An endpoint without a scheme is refused: the check of its host would not see it."""
    with pytest.raises(ConfigError, match=r"storage_api_endpoint = .* is not a URL; allowed: https://host:port"):
        parse_options({"storage_api_endpoint": text}.get)
