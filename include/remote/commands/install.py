# SPDX-License-Identifier: Apache-2.0
"""The install command: the supervisor's setup step, which installs the requirements of a run.

They come from the wheels that an earlier TPU has left in the bucket, or else from the index. They go into an
environment of the run, beside its attempts: the next attempt on the same machine finds them installed.

It ends with 0 when everything is installed, with 74 when the package index did not answer, else with pip's status.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Dict, List

import protocol

from machine.run_dir import RunDir
from packages.installer import Installer, Outcome
from packages.log import say
from packages.requirements import Requirements, python_tag
from packages.wheel_cache import WheelCache, cache_key

_NO_INDEX = (
    "the package index did not answer, the next try asks again. A TPU VM without an external address (internal_ips) "
    "needs Cloud NAT, or an index in its network that PIP_INDEX_URL names"
)
_FROM = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_PRE", "PIP_CONSTRAINT")
_DONE = ".installed"  # in the environment: the key of what is in it


class Installation:
    """One installation.

    :param run: the attempt.
    :param job: names the requirements, and where wheels are kept.
    :param installer: makes the environment.
    :param command: of it, that installs.
    """

    def __init__(self, run: RunDir, job: Dict[str, Any], installer: Installer, command: List[str]) -> None:
        self._run = run
        self._installer = installer
        self._command = command
        named = job.get("requirements")
        self._wanted = Requirements(run.bundle / named) if named else None
        self._packages = [str(one) for one in job.get("packages", [])]
        sources = [os.environ.get(name, "") for name in _FROM]
        image = installer.packages(installer.python)
        digest = self._wanted.digest if self._wanted is not None else ""
        self._key = cache_key(digest, self._packages, python_tag(), sources, image)
        uri = job.get("wheels_uri")
        self._cache = WheelCache(uri, self._key) if uri else None
        self._folder = run.run_path / ".wheels"

    def run(self) -> int:
        """Install, from the kept wheels if they are good; return the exit status of the step."""
        done = self._installer.venv / _DONE
        has_local = self._wanted is not None and self._wanted.has_local
        if not has_local and done.exists() and done.read_text() == self._key:
            say("the requirements are installed already")
            return protocol.EXIT_DONE
        from_cache = self._from_cache()
        status = protocol.EXIT_DONE
        if not from_cache or has_local:
            status = self._from_index(keep=not from_cache)
        if status == protocol.EXIT_DONE:
            done.write_text(self._key)
        shutil.rmtree(str(self._folder), ignore_errors=True)
        return status

    def _from_cache(self) -> bool:
        wheels = self._cache.fetch(self._folder) if self._cache is not None else None
        if not wheels:
            return False
        # By name: pip would note of a file that it came from there, and the run's record of its packages with it.
        names = ["%s==%s" % tuple(path.name.split("-")[:2]) for path in wheels]
        offline = ["--no-index", "--no-deps", "-f", str(self._folder)]
        outcome = self._installer.install([*self._command, *offline, *names])
        if outcome.status == 0:
            say("installed %d package(s) from the wheels that are kept in the bucket" % len(wheels))
        return outcome.status == 0

    def _from_index(self, keep: bool) -> int:
        file = self._wanted.file(self._installer, self._run.run_path) if self._wanted is not None else None
        if self._wanted is not None and file is None:
            return protocol.EXIT_FAILED
        before = set(self._installer.packages(str(self._installer.own)))
        # One after the other: a file with hashes takes nothing beside it.
        outcome = Outcome(protocol.EXIT_DONE, False)
        for words in [self._packages, ["-r", str(file)] if file is not None else []]:
            if words and outcome.status == protocol.EXIT_DONE:
                outcome = self._installer.install([*self._command, *words])
        if outcome.status == 0 and keep and self._cache is not None:
            come = set(self._installer.packages(str(self._installer.own))) - before
            self._keep(self._cache, sorted(line for line in come if " @ file:" not in line))
        return _status(outcome)

    def _keep(self, cache: WheelCache, installed: List[str]) -> None:
        """Keep the wheels of what has come; those of the project itself are no packages of an index."""
        if not installed or self._command[0] == self._installer.uv:
            return  # uv makes no wheels
        listed = self._run.run_path / "kept-requirements.txt"
        wanted = self._wanted
        options = [_absolute(line, wanted.path.parent) for line in wanted.options] if wanted is not None else []
        listed.write_text("\n".join([*options, *installed]) + "\n")
        shutil.rmtree(str(self._folder), ignore_errors=True)
        pip = [self._command[0], "-m", "pip", "wheel", "-q", "--no-deps"]
        made = self._installer.run([*pip, "-w", str(self._folder), "-r", str(listed)])
        if made.returncode != 0:
            say("the wheels are not kept for the next TPU: %s" % made.stdout.decode("utf-8", "replace")[-500:])
        elif cache.store(sorted(self._folder.glob("*.whl"))):
            say("%d wheel(s) are kept in the bucket for the next TPU" % len(installed))


def install(run: RunDir) -> int:
    """Install what the job names; return the exit status of the step."""
    job = run.read(protocol.JOB_FILE) or {}
    installer = Installer(run, dict(os.environ))
    command = installer.make()
    if command is None:
        return protocol.EXIT_FAILED
    try:
        status = Installation(run, job, installer, command).run()
    except ConnectionError:
        status = _status(Outcome(protocol.EXIT_FAILED, True))
    if status == protocol.EXIT_DONE:
        found = installer.packages(str(installer.own))
        (run.path / protocol.ENVIRONMENT_FILE).write_text("\n".join(["# %s" % python_tag(), *found]) + "\n")
    return status


def _status(outcome: Outcome) -> int:
    if outcome.status != 0 and outcome.unreachable:
        say(_NO_INDEX)
        return protocol.EXIT_STORAGE
    return outcome.status


def _absolute(option: str, folder: Path) -> str:
    """Return an option whose local path is found from another folder too."""
    name, _, value = option.replace("=", " ", 1).partition(" ")
    there = folder / value.strip()
    return "%s %s" % (name, there) if value.strip() and there.exists() else option
