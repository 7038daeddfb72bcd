# SPDX-License-Identifier: Apache-2.0
"""Requirements files: what they name beside them has to travel along, and what pip would refuse is said early."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from airflow_tpu.errors import Fault

# https://pip.pypa.io/en/stable/reference/requirements-file-format/
_OPTION = re.compile(r"(?:-r|-c|-e|--requirement|--constraint|--editable|-f)(?:\s+|=|(?<=-[rcef]))(?P<path>\S+)")
_COMMENT = re.compile(r"(^|\s+)#.*$")
_PER_LINE = re.compile(r"\s+--?[a-z]")  # --hash=..., --config-settings=... behind a requirement
_LEFT_TO_PIP = re.compile(r"^-|^\.|://|^file:|[/\\]|\.(whl|zip|tar\.gz)\b|\$\{\w+\}|^$")
_ARCHIVES = (".whl", ".gz", ".zip")
_PROJECT_FILES = ("pyproject.toml", "uv.lock")
_OTHER_KINDS = {
    ".py": "is a program; to install the project, write '.' into a requirements file",
    ".cfg": "is no requirements file; to install the project, write '.' into one",
    ".yml": "is an environment of conda; write its packages into a requirements file",
    ".yaml": "is an environment of conda; write its packages into a requirements file",
    ".lock": "is a lock file that is not read; export a requirements file from it",
}


def named_paths(requirements: Path) -> list[Path]:
    """Return the local files and folders that a requirements file names, those of included files too, itself first.

    :param requirements: the file.
    """
    found: list[Path] = []
    waiting = [requirements]
    while waiting:
        path = waiting.pop()
        if path in found or not path.exists():
            continue
        found.append(path)
        if path.name in _PROJECT_FILES:
            waiting += [path.with_name(name) for name in _PROJECT_FILES]
        elif path.is_file() and path.suffix not in _ARCHIVES:
            waiting += _references(path)
    return found


def requirement_faults(requirements: Path) -> list[Fault]:
    """Return the lines of a requirements file, and of those that it includes, that pip would refuse.

    Options, paths, URLs and variables are left to pip.

    :param requirements: the file.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    other = _OTHER_KINDS.get(requirements.suffix.lower())
    if other and requirements.name not in _PROJECT_FILES:
        allowed = ("requirements.txt", *_PROJECT_FILES)
        return [Fault("requirements", requirements.name, other, allowed)]
    faults = []
    for path in named_paths(requirements):
        is_read = path.is_file() and path.suffix not in _ARCHIVES and path.name not in _PROJECT_FILES
        for entry in _entries(path) if is_read else ():
            text = _PER_LINE.split(entry, maxsplit=1)[0]
            if _LEFT_TO_PIP.search(text):
                continue
            try:
                Requirement(text)
            except InvalidRequirement as error:
                problem = f"is no requirement that pip reads: {str(error).splitlines()[0]}"
                faults.append(Fault("requirements", f"{path.name}: {text}", problem))
    return faults


def _entries(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8", errors="replace").replace("\\\n", " ")
    return (_COMMENT.sub("", line).strip() for line in text.splitlines())


def _references(path: Path) -> Iterator[Path]:
    for entry in _entries(path):
        option = _OPTION.match(entry)
        name = option["path"] if option else entry.partition(";")[0].strip()
        if option or name.startswith((".", "file:")) or name.endswith((".whl", ".tar.gz", ".zip")):
            # pip reads included files relative to this one, but paths of projects relative to the working directory.
            yield path.parent / name.removeprefix("file:").partition("[")[0]
