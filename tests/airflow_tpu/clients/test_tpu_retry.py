# SPDX-License-Identifier: Apache-2.0
"""Credentials that Google refuses arrive as UNAVAILABLE in gRPC, and are told from an API that is away."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

REFUSED = {
    "impersonation": "the role Service Account Token Creator",
    "reauthentication": "Run gcloud auth application-default login",
    "challenge": "Run gcloud auth application-default login",
    "client": "Give the connection another one",
    "grant": "Renew those of the google_cloud_platform connection",
    "unknown": "Correct the credentials of the google_cloud_platform connection",
    "no-account": "has no service account",
}
"""The advice on each refusal that no other try cures."""

PASSING = ("passing", "impersonation-503", "metadata-down")

Outcomes = dict[str, tuple[str, str, int]]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Class, message and number of tries of each refusal, from a process whose gRPC trusts the test's certificate."""
    script = Path(__file__).with_name("refused_tokens.py")
    command = [sys.executable, str(script), str(tmp_path_factory.mktemp("tls"))]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = [json.loads(line) for line in output.splitlines() if line.startswith("[")]
    return {name: (kind, message, asked) for name, kind, message, asked in rows}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_credentials_are_not_tried_again(outcomes: Outcomes, name: str) -> None:
    """One try, Google's text and the advice; nothing says that the call may have been carried out."""
    kind, message, asked = outcomes[name]
    assert (kind, asked) == ("AccessDenied", 1)
    assert REFUSED[name] in message
    assert "outcome" not in message


@pytest.mark.parametrize("name", PASSING)
def test_a_token_endpoint_that_stumbles_is_asked_again(outcomes: Outcomes, name: str) -> None:
    """What google-auth cannot have for the moment is worth another try, and the call was not sent."""
    kind, message, asked = outcomes[name]
    assert kind == "TransientError"
    assert asked > 1
    assert "the call was not sent" in message
