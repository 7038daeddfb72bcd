# SPDX-License-Identifier: Apache-2.0
"""Requests to Google's APIs: endpoint, access token, and which failures are retried."""

from __future__ import annotations

import http.client
import json
import os
import random
import threading
import time
import urllib.parse
import urllib.request
from typing import Callable, Dict, NoReturn

from gcs.connections import Body, KeptConnections, Response

_GOOGLE = "https://storage.googleapis.com"
_METADATA_HOST = "metadata.google.internal"
_ACCOUNT = "/computeMetadata/v1/instance/service-accounts/default"
# https://cloud.google.com/storage/docs/retry-strategy#retryable, and 408
_TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})
_TRIES = 8  # about 40 s of pauses in all


class RequestFailed(RuntimeError):
    """The service refused, and would refuse again.

    :param status: HTTP status, 0 if there was no answer.
    :param message: what it said.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__("%d %s" % (status, message) if status else message)
        self.status = status


class Unavailable(RequestFailed):
    """No answer, or one that may change: worth another try."""


class Backoff:
    """Counts the consecutive failures of one piece of work and pauses between its tries.

    :param pause: waits so many seconds.
    """

    def __init__(self, pause: Callable[[float], object] = time.sleep) -> None:
        self._pause = pause
        self._failures = 0

    def failed(self, error: Unavailable) -> None:
        """Pause before the next try, or raise ``error`` after the last."""
        self._failures += 1
        if self._failures >= _TRIES:
            raise error
        self._pause(random.uniform(0.5, 1.0) * min(0.25 * 2**self._failures, 16.0))  # noqa: S311 - jitter, no secret

    def progressed(self) -> None:
        """Forget earlier failures: the work has progressed."""
        self._failures = 0


class Service:
    """A service of Google, or an emulator of it.

    :param url: where it is, ``http://`` or ``https://``.
    :param local: whether it is an emulator, which must not receive a token of Google's.
    :param pause: waits so many seconds between two tries.
    """

    def __init__(self, url: str, local: bool, pause: Callable[[float], object] = time.sleep) -> None:
        self._pause = pause
        self.url = url
        self._token = None if local else Token()
        self._connections = KeptConnections(proxied=not local)  # no proxy of the internet leads to this machine

    def backoff(self) -> Backoff:
        """Return the counter of a new piece of work."""
        return Backoff(self._pause)

    def request(self, method: str, url: str, body: bytes = b"", **headers: str) -> Response:
        """Make a request that may safely be repeated; retry it for a while.

        :raises RequestFailed: with the last answer.
        """
        backoff = self.backoff()
        while True:
            try:
                return self.once(method, url, body, **headers)
            except Unavailable as error:
                backoff.failed(error)

    def once(self, method: str, url: str, body: Body = b"", **headers: str) -> Response:
        """Make one request. 308 is a response: it says how much of an upload has been stored.

        :param body: bytes, or blocks of bytes together with ``Content_Length``.
        :param headers: with ``_`` for ``-``.
        :raises Unavailable: no answer, or one that may change.
        :raises RequestFailed: any other refusal.
        """
        sent: Dict[str, str] = {name.replace("_", "-"): value for name, value in headers.items()}
        if self._token is not None:
            sent["Authorization"] = "Bearer " + self._token.value()
        if method in ("POST", "PUT") and not body:
            sent["Content-Length"] = "0"
        try:
            response = self._connections.exchange(method, url, body, sent)
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(0, "no answer from %s: %s" % (urllib.parse.urlsplit(url).netloc, error)) from error
        return response if response.status < 300 or response.status == 308 else self._refused(response)

    def _refused(self, response: Response) -> NoReturn:
        if response.status == 401 and self._token is not None:
            self._token.forget()
            raise Unavailable(401, _message(response.body))
        kind = Unavailable if response.status in _TRANSIENT else RequestFailed
        raise kind(response.status, _message(response.body))


class Storage(Service):
    """Cloud Storage, or what ``STORAGE_EMULATOR_HOST`` names instead.

    :param pause: waits so many seconds between two tries.
    :raises ValueError: if that is no web address.
    """

    def __init__(self, pause: Callable[[float], object] = time.sleep) -> None:
        emulator = os.environ.get("STORAGE_EMULATOR_HOST", "")
        if emulator and "://" not in emulator:
            emulator = "http://" + emulator
        url = (emulator or _GOOGLE).rstrip("/")
        if not url.startswith(("http://", "https://")):
            raise ValueError("STORAGE_EMULATOR_HOST is %r: expected http:// or https://" % emulator)
        super().__init__(url, bool(emulator), pause)


class Token:
    """The access token of the machine's service account, from its metadata server; shared by threads.

    https://cloud.google.com/compute/docs/access/authenticate-workloads#applications
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._value = ""
        self._expires = 0.0
        self._url = "http://%s%s/token" % (os.environ.get("GCE_METADATA_HOST", _METADATA_HOST), _ACCOUNT)
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def value(self) -> str:
        """Return a token that is good for another minute.

        :raises Unavailable: if there is no metadata server, or no service account.
        """
        with self._lock:
            if time.monotonic() >= self._expires:
                self._fetch()
            return self._value

    def forget(self) -> None:
        """Drop a token that was refused, so that the next call fetches a new one."""
        with self._lock:
            self._expires = 0.0

    def _fetch(self) -> None:
        request = urllib.request.Request(self._url, headers={"Metadata-Flavor": "Google"})  # noqa: S310 - http
        try:
            with self._opener.open(request, timeout=10.0) as response:
                answer = json.loads(response.read().decode("utf-8"))
            self._value = answer["access_token"]
            self._expires = time.monotonic() + float(answer["expires_in"]) - 60.0
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            raise Unavailable(0, "no access token from the metadata server: %s" % error) from error


def _message(body: bytes) -> str:
    """Return the sentence in an error response, which is JSON or, from uploads, plain text."""
    try:
        return str(json.loads(body.decode("utf-8"))["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body[:300].decode("utf-8", "replace").strip()
