# SPDX-License-Identifier: Apache-2.0
"""The HTTP session under Google's client for Cloud Storage: refusals that no other try cures become errors of ours.

Everything else (missing objects, preconditions, plain denials, failures that pass) reaches Google's client as it is.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

from google.auth.exceptions import RefreshError, TransportError
from google.auth.transport.requests import AuthorizedSession
from requests import Response
from requests.exceptions import ProxyError, SSLError

from airflow_tpu.core.tpu.api_errors import classify_token, known_refusal

_REFUSALS = frozenset({400, 401, 403})
_SHOWN = 500  # characters of an answer that is no JSON


class StorageSession(AuthorizedSession):
    """Sends requests with the credentials of a connection.

    :raises AccessDenied: with advice, where Google gives no access token, or refuses for the sake of an organisation,
        a billing account or the like, and where a proxy lets nothing through.
    :raises TransientError: where there is no access token for the moment.
    """

    def request(  # type: ignore[override]  # the options are the base's, which has no types
        self, method: str, url: str, *args: Any, **kwargs: Any
    ) -> Response:
        """Send one request; see :meth:`requests.Session.request`."""
        try:
            response: Response = super().request(method, url, *args, **kwargs)  # type: ignore[no-untyped-call]
        except RefreshError as error:
            raise classify_token(str(error), _place(url), error.retryable) from error
        except (TransportError, SSLError, ProxyError) as error:
            # A certificate or a proxy in between that keeps every try from getting through.
            refusal = known_refusal(str(error), "", _place(url))
            if refusal is None:
                raise
            raise refusal from error
        if response.status_code in _REFUSALS:
            message, reason = _said(response)
            refusal = known_refusal(message, reason, _place(url))
            if refusal is not None:
                raise refusal
        return response


def _place(url: str) -> str:
    return f"Cloud Storage, {urlsplit(url).path}"


def _said(response: Response) -> tuple[str, str]:
    """Return text and reason of a refusal, which is JSON or, from downloads and uploads, often plain text."""
    try:
        error = json.loads(response.text)["error"]
        return str(error["message"]), str(error["errors"][0]["reason"])
    except (ValueError, KeyError, IndexError, TypeError):
        return response.text[:_SHOWN], ""
