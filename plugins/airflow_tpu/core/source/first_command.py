# SPDX-License-Identifier: Apache-2.0
"""The first command of a line for a shell that starts code of the project: nothing before it can have made a file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

_OPERATORS = "();<>|&\n"
_NOT_PLAIN = re.compile(r"[$`*?~{}]|^#|^!$")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_PREPARES = frozenset({"apt", "apt-get", "echo", "export", "mkdir", "pip", "pip3", "set", "sudo", "ulimit", "unset"})
"""Programs that make no code of the project."""

_SOURCED = ("source", ".")

_TOOLS = {
    "papermill": ("papermill>=2.6,<3", "ipykernel>=6,<8"),
    "jupyter": ("nbconvert>=7,<8", "ipykernel>=6,<8"),
    "uv": ("uv>=0.4",),
}
"""Programs that people start their own with, and what brings them where the image has none."""


@dataclass(frozen=True)
class FirstCommand:
    """What a line starts first.

    :param folder: that it runs in, below the project; ``.`` for its top.
    :param words: program and arguments; none when the line does not say.
    """

    folder: str = "."
    words: tuple[str, ...] = ()


def first_command(text: str) -> FirstCommand:
    """Return the first command of a line that is more than a preparation, with the folder that ``cd`` has led to.

    :param text: of the line; words that only a shell knows end the search.
    """
    found = FirstCommand()
    for words in _simple_commands(text):
        plain = tuple(words)[_assignments(words) :]
        if not plain or plain[0] in _PREPARES or plain[1:3] == ("-m", "pip"):
            continue
        if any(_NOT_PLAIN.search(word) for word in plain[:2]):
            return found
        if plain[0] != "cd":
            return replace(found, words=plain)
        if len(plain) != 2 or plain[1].startswith("/"):
            return found
        found = replace(found, folder=str(PurePosixPath(found.folder, plain[1])))
    return found


def tool_packages(words: tuple[str, ...], line: str) -> tuple[str, ...]:
    """Return what brings the programs of a command that no project brings itself.

    :param words: program and arguments.
    :param line: as it was typed, where a shell runs it; else empty.
    """
    programs = {words[0]} if not line else {command[0] for command in _plain_commands(line)}
    return tuple(package for name in _TOOLS if name in programs for package in _TOOLS[name])


def _plain_commands(line: str) -> Iterator[list[str]]:
    """Every command of a line that begins with its program, wherever it stands."""
    for words in _simple_commands(line, to_the_end=True):
        plain = words[_assignments(words) :]
        if plain:
            yield plain


def is_sourced(words: tuple[str, ...]) -> bool:
    """Whether a command reads a file into the shell: ``source venv/bin/activate``."""
    return len(words) > 1 and words[0] in _SOURCED


def _assignments(words: list[str]) -> int:
    return next((number for number, word in enumerate(words) if not _ASSIGNMENT.match(word)), len(words))


def _simple_commands(text: str, to_the_end: bool = False) -> Iterator[list[str]]:
    """Words of one command after the other.

    :param to_the_end: also from where on they do not run in this order for certain.
    """
    lexer = shlex.shlex(text, posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    words: list[str] = []
    for word in lexer:
        if not set(word) <= set(_OPERATORS):
            words.append(word)
            continue
        yield words
        if not to_the_end and (word == "&" or set(word) - set("&;\n")):
            return
        words = []
    yield words
