"""The install command: the supervisor's setup step, which installs the requirements of a run.

They go into an environment of the run, beside its attempts: the next attempt on the same machine finds them installed,
and the image's own packages (its TensorFlow) stay visible. Images without the package ``python3-venv`` are common, so
there are several ways to make one.

It ends with 0 when everything is installed, with 74 when the package index did not answer, else with pip's status.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Optional

import protocol

from machine.run_dir import RunDir

# In the order of preference; each makes a directory that is named last.
_WAYS = (
    ("venv", "--system-site-packages"),
    ("virtualenv", "--system-site-packages"),
    ("venv", "--without-pip", "--system-site-packages"),  # with the pip of the image
)
_SITE = "site"  # packages of an environment that no module would make
# pip's words when an index gave no answer, or one that passes; a certificate that is refused does not pass.
_UNREACHABLE = re.compile(
    rb"Retrying \(Retry\((?!.*CERTIFICATE_VERIFY_FAILED)|NewConnectionError|ConnectTimeoutError|ReadTimeout|Max retries"
    rb"|name resolution|Network is unreachable|HTTP error 5\d\d|Connection (?:refused|reset|broken)|IncompleteRead"
)
_NOTHING_WORKS = (
    "python3 of this machine can make no environment and has no pip, so the requirements cannot be installed. Take a "
    "runtime version whose image has the package python3-venv or python3-pip, or leave requirements empty"
)
_NO_INDEX = (
    "the package index did not answer, the next try asks again. A TPU VM without an external address (internal_ips) "
    "needs Cloud NAT, or an index in its network that PIP_INDEX_URL names"
)


class Installer:
    """Makes the environment of a run.

    :param run: an attempt of it.
    :param variables: environment variables of the step.
    """

    def __init__(self, run: RunDir, variables: Dict[str, str]) -> None:
        self._venv = run.run_path / protocol.VENV_DIR
        self._own = self._venv / "bin" / "python"
        # Modules of the user's bundle must not take the place of pip's.
        self.variables = {name: value for name, value in variables.items() if name != "PYTHONPATH"}
        others = [path for path in variables.get("PATH", os.defpath).split(os.pathsep) if path != str(self._own.parent)]
        self._python = shutil.which("python3", path=os.pathsep.join(others)) or sys.executable

    def pip(self) -> Optional[List[str]]:
        """Return the command that installs into the environment, which is made if need be; None if it cannot be."""
        if (self._venv / _SITE).is_dir():
            return self._into_site()
        if self._has_pip(self._own):
            return [str(self._own), "-m", "pip", "install"]
        return self._make()

    def _make(self) -> Optional[List[str]]:
        for way in _WAYS:
            shutil.rmtree(str(self._venv), ignore_errors=True)
            made = self._run([self._python, "-m", *way, str(self._venv)])
            if made.returncode == 0 and self._has_pip(self._own):
                return [str(self._own), "-m", "pip", "install"]
            if way == _WAYS[0]:
                _say("python3 -m venv makes no environment here (on Ubuntu: package python3-venv), trying other ways")
        if not self._has_pip(Path(self._python)):
            _say(_NOTHING_WORKS)
            return None
        self._make_by_hand()
        return self._into_site()

    def _make_by_hand(self) -> None:
        """Make a directory for the packages, and a python that finds them there."""
        shutil.rmtree(str(self._venv), ignore_errors=True)
        (self._venv / _SITE).mkdir(parents=True)
        self._own.parent.mkdir()
        site = shlex.quote(str(self._venv / _SITE))
        line = 'PYTHONPATH=%s"${PYTHONPATH:+:$PYTHONPATH}" exec %s "$@"' % (site, shlex.quote(self._python))
        for name in ("python", "python3"):
            path = self._own.with_name(name)
            path.write_text("#!/bin/sh\n%s\n" % line)
            path.chmod(0o755)

    def _into_site(self) -> List[str]:
        return [self._python, "-m", "pip", "install", "--upgrade", "--target", str(self._venv / _SITE)]

    def _has_pip(self, python: Path) -> bool:
        return python.exists() and self._run([str(python), "-m", "pip", "--version"]).returncode == 0

    def _run(self, command: List[str]) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            command, env=self.variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )


def install(run: RunDir) -> int:
    """Install what the job names; return the exit status of the step."""
    job = run.read(protocol.JOB_FILE) or {}
    installer = Installer(run, dict(os.environ))
    pip = installer.pip()
    if pip is None:
        return protocol.EXIT_FAILED
    requirements = str(run.bundle / job["requirements"])
    with subprocess.Popen(
        [*pip, "-q", "-r", requirements], env=installer.variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        unreachable = _copy_output(process)
    if process.returncode != 0 and unreachable:
        _say(_NO_INDEX)
        return protocol.EXIT_STORAGE
    return process.returncode if process.returncode >= 0 else 128 - process.returncode  # as a shell says it


def _copy_output(process: "subprocess.Popen[bytes]") -> bool:
    """Copy the lines of pip to the log as they come; return whether one says that an index was not reached."""
    unreachable = False
    for line in process.stdout or ():
        unreachable = unreachable or _UNREACHABLE.search(line) is not None
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
    return unreachable


def _say(text: str) -> None:
    """Write a line to the run's log, which is standard output."""
    print("airflow-tpu: " + text, flush=True)
