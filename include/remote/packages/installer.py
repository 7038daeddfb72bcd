# SPDX-License-Identifier: Apache-2.0
"""An environment for the packages of a run, and what installs into it.

It lies beside the run's attempts, and the image's own packages (its TensorFlow) stay visible. Images without the
package ``python3-venv`` are common, so there are several ways to make one.

pip installs although uv is faster: uv does not count the image's packages as installed, and would bring another
TensorFlow (https://github.com/astral-sh/uv/issues/7358). It installs where there is no pip.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional

import protocol

from machine.run_dir import RunDir
from packages.log import say

# In the order of preference; each makes a directory that is named last.
_WAYS = (
    ("venv", "--without-pip", "--system-site-packages"),  # with the pip of the image: faster by some seconds
    ("venv", "--system-site-packages"),
    ("virtualenv", "--system-site-packages"),
)
_SITE = "site"  # packages of an environment that no module would make
# Words of pip and uv when an index gave no answer, or one that passes; a refused certificate does not pass.
_UNREACHABLE = re.compile(
    rb"Retrying \(Retry\((?!.*CERTIFICATE_VERIFY_FAILED)|NewConnectionError|ConnectTimeoutError|ReadTimeout|Max retries"
    rb"|name resolution|Network is unreachable|HTTP error 5\d\d|Connection (?:refused|reset|broken)|IncompleteRead"
    rb"|error sending request for url"
)
_NOTHING_WORKS = (
    "python3 of this machine can make no environment and has neither pip nor uv, so the requirements cannot be "
    "installed. Take a runtime version whose image has the package python3-venv or python3-pip, or leave requirements "
    "empty"
)
# Of what came from elsewhere than an index (PEP 610) the place, as pip freeze says it.
_LIST = """
import importlib.metadata, json, sys
found = {}
for one in importlib.metadata.distributions():
    name = one.metadata["Name"]
    if name and name.lower() not in found:
        origin = json.loads(one.read_text("direct_url.json") or "{}")
        line, url, vcs = "%s==%s" % (name, one.version), origin.get("url"), origin.get("vcs_info")
        if vcs:
            line = "%s @ %s+%s@%s" % (name, vcs["vcs"], url, vcs["commit_id"])
        elif url:
            line = "%s @ %s" % (name, url)
        found[name.lower()] = line
json.dump(sorted(found.values(), key=str.lower), sys.stdout)
"""


class Outcome(NamedTuple):
    """How an installation ended.

    :param status: as a shell says it.
    :param unreachable: a line says that an index gave no answer.
    """

    status: int
    unreachable: bool


class Installer:
    """Makes the environment of a run.

    :param run: an attempt of it.
    :param variables: environment variables of the step.
    """

    def __init__(self, run: RunDir, variables: Dict[str, str]) -> None:
        self.venv = run.run_path / protocol.VENV_DIR
        self.own = self.venv / "bin" / "python"
        # Modules of the user's bundle must not take the place of pip's.
        self.variables = {name: value for name, value in variables.items() if name != "PYTHONPATH"}
        self.variables.setdefault("PIP_DISABLE_PIP_VERSION_CHECK", "1")  # it asks the index when all is installed
        others = [path for path in variables.get("PATH", os.defpath).split(os.pathsep) if path != str(self.own.parent)]
        self.python = shutil.which("python3", path=os.pathsep.join(others)) or sys.executable
        at_home = os.path.join(os.path.expanduser("~"), ".local", "bin")
        self.uv = shutil.which("uv", path=os.pathsep.join([*others, at_home]))

    def make(self) -> Optional[List[str]]:
        """Return the command that installs into the environment, which is made if need be; None if it cannot be."""
        if (self.venv / _SITE).is_dir():
            return self._into_site()
        if self._has_pip(self.own):
            return [str(self.own), "-m", "pip", "install", "-q"]
        if self.own.exists() and self.uv:
            return self._with_uv()
        return self._make()

    def _make(self) -> Optional[List[str]]:
        for way in _WAYS:
            shutil.rmtree(str(self.venv), ignore_errors=True)
            made = self.run([self.python, "-m", *way, str(self.venv)])
            if made.returncode == 0 and self._has_pip(self.own):
                return [str(self.own), "-m", "pip", "install", "-q"]
            if way == _WAYS[1]:
                say("python3 -m venv makes no environment here (on Ubuntu: package python3-venv), trying other ways")
        if self._has_pip(Path(self.python)):
            self._make_by_hand()
            return self._into_site()
        shutil.rmtree(str(self.venv), ignore_errors=True)
        if self.uv and self.run([self.uv, "venv", "-q", "--system-site-packages", str(self.venv)]).returncode == 0:
            say("there is no pip on this machine, so uv installs; it does not count the image's packages as installed")
            return self._with_uv()
        say(_NOTHING_WORKS)
        return None

    def _with_uv(self) -> List[str]:
        return [str(self.uv), "pip", "install", "-q", "--python", str(self.own)]

    def _make_by_hand(self) -> None:
        """Make a directory for the packages, and a python that finds them there."""
        shutil.rmtree(str(self.venv), ignore_errors=True)
        (self.venv / _SITE).mkdir(parents=True)
        self.own.parent.mkdir()
        site = shlex.quote(str(self.venv / _SITE))
        line = 'PYTHONPATH=%s"${PYTHONPATH:+:$PYTHONPATH}" exec %s "$@"' % (site, shlex.quote(self.python))
        for name in ("python", "python3"):
            path = self.own.with_name(name)
            path.write_text("#!/bin/sh\n%s\n" % line)
            path.chmod(0o755)

    def _into_site(self) -> List[str]:
        return [self.python, "-m", "pip", "install", "-q", "--upgrade", "--target", str(self.venv / _SITE)]

    def _has_pip(self, python: Path) -> bool:
        return python.exists() and self.run([str(python), "-m", "pip", "--version"]).returncode == 0

    def packages(self, python: str) -> List[str]:
        """Return everything that a Python finds, as lines of a requirements file; empty if it cannot say."""
        listed = self.run([python, "-c", _LIST])
        document = listed.stdout.decode("utf-8", "replace").strip().rpartition("\n")[2]
        try:
            return [str(one) for one in json.loads(document)] if listed.returncode == 0 else []
        except ValueError:
            return []

    def run(self, command: List[str]) -> "subprocess.CompletedProcess[bytes]":
        """Run a command without input; its output is kept."""
        return subprocess.run(
            command, env=self.variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def install(self, command: List[str]) -> Outcome:
        """Run a command that installs; its lines go to the log as they come."""
        unreachable = False
        with subprocess.Popen(
            command, env=self.variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process:
            for line in process.stdout or ():
                unreachable = unreachable or _UNREACHABLE.search(line) is not None
                sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()
        status = process.returncode
        return Outcome(status if status >= 0 else 128 - status, unreachable)
