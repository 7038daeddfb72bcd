# SPDX-License-Identifier: Apache-2.0
"""Calls of the product's client with credentials for which Google gives no access token; a program of its own.

gRPC demands TLS before it asks credentials for a token, and reads its certificates once per process: so the test cannot
do this in its own. Usage: ``refused_tokens.py FOLDER``; one line of JSON for each kind of refusal.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from google.auth.credentials import Credentials
from google.auth.exceptions import ReauthFailError, RefreshError, TransportError

from localcloud.gcs.tls.certificates import server_context

FOLDER = Path(sys.argv[1])
server_context(FOLDER, ["localhost"])
os.environ["GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"] = str(FOLDER / "ca.pem")

import grpc  # noqa: E402 - it reads the variable

from airflow_tpu.clients.tpu_api import TPUClient  # noqa: E402 - it imports gRPC
from airflow_tpu.clients.tpu_calls import APIEndpoint  # noqa: E402
from airflow_tpu.clients.tpu_retry import CallTiming  # noqa: E402
from airflow_tpu.errors import TPUError  # noqa: E402

DENIED = (
    '{"error": {"code": 403, "message": "Permission \'iam.serviceAccounts.getAccessToken\' denied on resource (or it '
    'may not exist).", "status": "PERMISSION_DENIED"}}'
)
METADATA = (
    "Failed to retrieve http://metadata.google.internal/computeMetadata/v1/ from the Google Compute Engine metadata"
)
REFUSALS = {
    "impersonation": RefreshError("Unable to acquire impersonated credentials", DENIED),
    "reauthentication": RefreshError("Reauthentication is needed. Please run `gcloud auth application-default login`"),
    "challenge": ReauthFailError("Challenge SECURITY_KEY is not locally eligible"),
    "client": RefreshError("invalid_client: The OAuth client was not found.", {"error": "invalid_client"}),
    "grant": RefreshError("invalid_grant: Invalid JWT Signature.", {"error": "invalid_grant"}),
    "unknown": RefreshError("a refusal that nobody has seen"),
    "no-account": TransportError(f"{METADATA} service. Status: 404 Response:\nb'Not Found'"),
    "passing": RefreshError("internal_failure: None", retryable=True),
    "impersonation-503": RefreshError("Unable to acquire impersonated credentials", '{"error": {"code": 503}}'),
    "metadata-down": TransportError(f"{METADATA} service. Compute Engine Metadata server unavailable."),
}


class Refused(Credentials):
    """Credentials that count how often they were asked.

    :param error: what google-auth says.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Google's own
        self.error = error
        self.asked = 0

    def refresh(self, request: Any) -> None:
        """Ask for a token."""
        self.asked += 1
        raise self.error


async def call_all(address: str) -> None:
    """Write what becomes of each refusal."""
    for name, refusal in REFUSALS.items():
        credentials = Refused(refusal)
        try:
            timing = CallTiming(answer=30.0, retry=0.5, pause=0.01)
            async with TPUClient(APIEndpoint("p", credentials, address), timing) as client:
                await client.nodes()
        except TPUError as error:
            row = [name, type(error).__name__, str(error), credentials.asked]
            sys.stdout.write(json.dumps(row) + "\n")


def main() -> None:
    """Serve TLS on a free port, and call."""
    server = grpc.server(ThreadPoolExecutor(1))
    pem = (FOLDER / "server.pem").read_bytes()  # certificate and key
    pair = (pem, pem)
    port = server.add_secure_port("localhost:0", grpc.ssl_server_credentials([pair]))
    server.start()
    asyncio.run(call_all(f"localhost:{port}"))


if __name__ == "__main__":
    main()
