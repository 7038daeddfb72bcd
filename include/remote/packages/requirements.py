# SPDX-License-Identifier: Apache-2.0
"""What a run asks for: a requirements file with what it includes, or ``pyproject.toml`` with or without ``uv.lock``."""

from __future__ import annotations

import hashlib
import re
import sys
import sysconfig
from pathlib import Path
from typing import Iterator, List, Optional

from packages.installer import Installer
from packages.log import say

PROJECT, LOCK = "pyproject.toml", "uv.lock"
# https://pip.pypa.io/en/stable/reference/requirements-file-format/
_INCLUDED = re.compile(r"(?:-r|-c|--requirement|--constraint)(?:\s+|=|(?<=-[rc]))(?P<path>\S+)")
_OPTION = re.compile(r"-(?![rce]|-requirement|-constraint|-editable)")
_LOCAL = re.compile(r"(?:-e|--editable)\b|\.{0,2}/|file:|\S+\.(?:whl|tar\.gz|zip)(?:\s|;|\[|$)|\.(?:\s|\[|$)")
_COMMENT = re.compile(r"(^|\s+)#.*$")
_DEPENDENCIES = """
import sys
try:
    import tomllib
except ImportError:
    from pip._vendor import tomli as tomllib
with open(sys.argv[1], "rb") as file:
    print("\\n".join(tomllib.load(file).get("project", {}).get("dependencies", [])))
"""


class Requirements:
    """What is to be installed.

    :param path: of the file that the form names.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        lock = path.with_name(LOCK)
        self.is_project = path.name in (PROJECT, LOCK)
        self.lock: Optional[Path] = lock if self.is_project and lock.exists() else None

    @property
    def files(self) -> List[Path]:
        """Files that say it, those that they include too."""
        if self.is_project:
            return [path for path in (self.path.with_name(PROJECT), self.lock) if path is not None and path.exists()]
        return _included(self.path)

    @property
    def lines(self) -> List[str]:
        """Lines of the requirements files, without comments; none of a project."""
        return [] if self.is_project else [line for path in self.files for line in _lines(path)]

    @property
    def options(self) -> List[str]:
        """Lines that say where packages come from."""
        return [line for line in self.lines if _OPTION.match(line)]

    @property
    def has_local(self) -> bool:
        """Whether files or folders of the project are installed, which may change without these files."""
        return any(_LOCAL.match(line) for line in self.lines)

    @property
    def digest(self) -> str:
        """Digest of what the files say."""
        whole = hashlib.sha256()
        for path in self.files:
            whole.update(hashlib.sha256(path.read_bytes()).digest())
        return whole.hexdigest()

    def file(self, installer: Installer, folder: Path) -> Optional[Path]:
        """Return a requirements file for pip, made from the project's files if need be; None if that fails.

        :param installer: brings uv where the machine has none.
        :param folder: for what is made.
        """
        if not self.is_project:
            return self.path
        made = folder / "project-requirements.txt"
        if self.lock is None:
            listed = installer.run([installer.python, "-c", _DEPENDENCIES, str(self.path.with_name(PROJECT))])
            if listed.returncode != 0:
                say("%s cannot be read: %s" % (PROJECT, listed.stdout.decode("utf-8", "replace")[-500:]))
                return None
            made.write_bytes(listed.stdout)
            return made
        return made if _export(installer, self.lock.parent, made, folder / "uv") else None


def _export(installer: Installer, project: Path, made: Path, tools: Path) -> bool:
    """Have uv write what its lock file says, with hashes, as requirements."""
    uv = installer.uv or _bring_uv(installer, tools)
    if not uv:
        return False
    command = [uv, "export", "-q", "--frozen", "--no-dev", "--no-emit-workspace", "--format", "requirements-txt"]
    exported = installer.run([*command, "--project", str(project), "-o", str(made)])
    if exported.returncode != 0:
        say("uv cannot read %s: %s" % (LOCK, exported.stdout.decode("utf-8", "replace")[-500:]))
    return exported.returncode == 0


def _bring_uv(installer: Installer, tools: Path) -> str:
    say("%s needs uv, which this machine does not have: installing it" % LOCK)
    outcome = installer.install([installer.python, "-m", "pip", "install", "-q", "--target", str(tools), "uv"])
    if outcome.status != 0:
        say("uv could not be installed; give a requirements file instead (uv export > requirements.txt)")
        if outcome.unreachable:
            raise ConnectionError("no index for uv")
    return str(tools / "bin" / "uv") if outcome.status == 0 else ""


def _included(path: Path) -> List[Path]:
    found: List[Path] = []
    waiting = [path]
    while waiting:
        one = waiting.pop()
        if one in found or not one.is_file():
            continue
        found.append(one)
        matches = (_INCLUDED.match(line) for line in _lines(one))
        waiting += [one.parent / match["path"] for match in matches if match is not None]
    return found


def _lines(path: Path) -> Iterator[str]:
    for line in path.read_text("utf-8", "replace").replace("\\\n", " ").splitlines():
        stated = _COMMENT.sub("", line).strip()
        if stated:
            yield stated


def python_tag() -> str:
    """Return what this Python is, as far as wheels depend on it."""
    return "%s-%d.%d-%s" % (sys.implementation.name, *sys.version_info[:2], sysconfig.get_platform())
