# SPDX-License-Identifier: Apache-2.0
"""Connections that stay open between requests: each new one costs a handshake, several with TLS."""

from __future__ import annotations

import base64
import http.client
import json
import select
import ssl
import threading
import time
import urllib.parse
import urllib.request
from email.message import Message
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Tuple, Union

_TIMEOUT_SECS = 60.0  # silence of the server, not a whole upload
_IDLE_SECS = 30.0  # what lies between may forget an idle connection after some minutes, without a word

Body = Union[bytes, Iterable[bytes]]


class Response(NamedTuple):
    """An answer of any status.

    :param body: raw bytes; :meth:`json` reads them.
    """

    status: int
    headers: Message
    body: bytes

    def json(self) -> Dict[str, Any]:
        """Return the body as an object."""
        document: Dict[str, Any] = json.loads(self.body.decode("utf-8"))
        return document


class KeptConnections:
    """Makes requests over connections that are kept; safe for threads, each of which has one to itself meanwhile.

    :param proxied: whether the proxies that the environment names are used.
    :param clock: gives monotonic seconds.
    """

    def __init__(self, proxied: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._proxies: Dict[str, str] = urllib.request.getproxies() if proxied else {}
        self._lock = threading.Lock()
        self._tls = ssl.create_default_context()  # it reads all certificates of the machine, which takes a while
        self._idle: Dict[Tuple[str, str], List[Tuple[float, http.client.HTTPConnection]]] = {}

    def exchange(self, method: str, url: str, body: Body, headers: Dict[str, str]) -> Response:
        """Make one request; a redirect is an answer as any other.

        :param body: bytes, or blocks of bytes whose ``Content-Length`` is among the headers.
        :raises OSError: if there is no answer.
        :raises http.client.HTTPException: the same.
        """
        parts = urllib.parse.urlsplit(url)
        proxy = self._proxy(parts)
        connection = self._take(parts, proxy)
        target = urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))
        if proxy is not None and parts.scheme == "http":
            target, headers = url, {**headers, **_login(proxy)}
        try:
            connection.request(method, target, body or None, headers)
            with connection.getresponse() as answer:
                response = Response(answer.status, answer.headers, answer.read())
                closing = answer.will_close
        except BaseException:
            connection.close()
            raise
        self._give_back(parts, connection, closing)
        return response

    def _take(
        self, parts: urllib.parse.SplitResult, proxy: urllib.parse.SplitResult | None
    ) -> http.client.HTTPConnection:
        with self._lock:
            idle = self._idle.get((parts.scheme, parts.netloc), [])
            while idle:
                since, connection = idle.pop()
                if self._clock() - since < _IDLE_SECS and not _is_over(connection):
                    return connection
                connection.close()
        return self._open(parts, proxy)

    def _open(
        self, parts: urllib.parse.SplitResult, proxy: urllib.parse.SplitResult | None
    ) -> http.client.HTTPConnection:
        host, port = (parts.hostname, parts.port) if proxy is None else (proxy.hostname, proxy.port or 80)
        if parts.scheme == "http":
            return http.client.HTTPConnection(host or "", port, timeout=_TIMEOUT_SECS)
        connection = http.client.HTTPSConnection(host or "", port, timeout=_TIMEOUT_SECS, context=self._tls)
        if proxy is not None:
            connection.set_tunnel(parts.hostname or "", parts.port, _login(proxy))
        return connection

    def _give_back(
        self, parts: urllib.parse.SplitResult, connection: http.client.HTTPConnection, closing: bool
    ) -> None:
        if closing:
            connection.close()
            return
        with self._lock:
            self._idle.setdefault((parts.scheme, parts.netloc), []).append((self._clock(), connection))

    def _proxy(self, parts: urllib.parse.SplitResult) -> urllib.parse.SplitResult | None:
        named = self._proxies.get(parts.scheme)
        if not named or urllib.request.proxy_bypass(parts.hostname or ""):
            return None
        return urllib.parse.urlsplit(named if "://" in named else "http://" + named)


def _login(proxy: urllib.parse.SplitResult) -> Dict[str, str]:
    """Return the header with the password that a proxy's address carries, if it does."""
    if proxy.username is None:
        return {}
    words = "%s:%s" % (urllib.parse.unquote(proxy.username), urllib.parse.unquote(proxy.password or ""))
    return {"Proxy-Authorization": "Basic " + base64.b64encode(words.encode("utf-8")).decode("ascii")}


def _is_over(connection: http.client.HTTPConnection) -> bool:
    """Tell whether the server has closed an idle connection: between two answers it has nothing else to send."""
    if connection.sock is None:
        return True
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))
