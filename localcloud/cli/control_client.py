# SPDX-License-Identifier: Apache-2.0
"""A client of a running cloud's control port; standard library only, so that the command line answers at once."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from localcloud.endpoints import Endpoints

_TIMEOUT = 120.0


class CommandError(Exception):
    """A command failed; the text says why and what to do."""


def endpoints_of(state_dir: Path) -> Endpoints:
    """Return where the cloud of a state directory is found.

    :raises CommandError: if none runs there.
    """
    try:
        return Endpoints.read(state_dir)
    except FileNotFoundError:
        raise CommandError(
            f"No local cloud runs in {state_dir}. Start one: python -m localcloud up --detach --state-dir {state_dir}"
        ) from None


def ask(state_dir: Path, path: str, body: Any = None) -> Any:
    """Call the control port, with POST if there is a body, and return its JSON answer.

    :raises CommandError: with the cloud's own text if it refuses, or if it does not answer.
    """
    url = f"{endpoints_of(state_dir).control_endpoint}{path}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data)  # noqa: S310 - the URL is the one our own file names
    # No proxy from the environment: the control port is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_TIMEOUT) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise CommandError(error.read().decode(errors="replace")) from None
    except OSError as error:
        raise CommandError(f"The local cloud of {state_dir} does not answer: {error}") from None
