# SPDX-License-Identifier: Apache-2.0
"""The power switch of a TPU VM: ``shutdown`` and ``sudo`` that reach the local cloud and never this machine.

Found first in the PATH of every session. This file is run by path, so it needs nothing but the standard library.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import urllib.error
import urllib.request
from pathlib import Path

NODE_VARIABLE = "LOCALCLOUD_NODE"
_SECONDS = 60.0
# There is no other user: the login of a VM may do here what root may do on a real one.
_SUDO = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
exec "$@"
"""


def install(directory: Path, control: str) -> None:
    """Write the programs.

    :param directory: goes first into the PATH.
    :param control: base URL of the control port.
    """
    directory.mkdir(parents=True, exist_ok=True)
    words = (sys.executable, "-I", __file__, control)
    _write(directory / "shutdown", f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    _write(directory / "sudo", _SUDO)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def switch_off(control: str, node: str) -> str:
    """Tell the cloud that a VM of a node is going down; return why it does not, empty if it does."""
    request = urllib.request.Request(  # noqa: S310 - the control port is http
        f"{control}/nodes/shutdown", json.dumps({"node": node}).encode(), {"Content-Type": "application/json"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_SECONDS):
            return ""
    except urllib.error.HTTPError as error:
        return error.read().decode("utf-8", "replace")
    except OSError as error:
        return str(error)


def main(arguments: list[str]) -> int:
    """Entry point: the control port, then the arguments of ``shutdown``, of which only "now" is imitated."""
    problem = switch_off(arguments[0], os.environ.get(NODE_VARIABLE, ""))
    if problem:
        sys.stderr.write(f"shutdown: {problem}\n")
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
