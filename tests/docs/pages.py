# SPDX-License-Identifier: Apache-2.0
"""The shell commands of the documentation, in the order of each page, with what the page says that they print."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "include" / "train" / "README.md"])
SHELLS = {"console", "bash", "sh", "shell"}
PROMPT = "$ "
_BLOCK = re.compile(r"^```(?P<language>\w*|\{\w+\})\n(?P<body>.*?)^```", re.DOTALL | re.MULTILINE)
_HEREDOC = re.compile(r"<<-?\s*'?(\w+)'?")


@dataclass(frozen=True)
class Command:
    """One command, which may have several lines.

    :param page: path below the repository.
    :param line: where it begins, from 1.
    :param text: as it is typed, without the prompt.
    :param shown: the lines that the page prints below it; none if it shows no output.
    """

    page: str
    line: int
    text: str
    shown: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.plain}"

    @property
    def plain(self) -> str:
        """On one line and without its comment, as the lists of this folder name it."""
        return " ".join(words(self.text.split("<<", 1)[0]))


def words(text: str) -> list[str]:
    """The words of a command, as a shell reads them; unlike a shell, ``shlex`` keeps an escaped line break."""
    return shlex.split(text.replace("\\\n", ""), comments=True)


def name_of(page: Path) -> str:
    """Path of a page below the repository."""
    return page.relative_to(ROOT).as_posix()


def languages(page: Path) -> list[str]:
    """The languages of a page's blocks; empty for a block without one."""
    return [found["language"] for found in _BLOCK.finditer(page.read_text(encoding="utf-8"))]


def commands(page: Path) -> list[Command]:
    """Every command of a page."""
    text = page.read_text(encoding="utf-8")
    found = []
    for block in _BLOCK.finditer(text):
        if block["language"] in SHELLS:
            first = text.count("\n", 0, block.start("body")) + 1
            found += list(_of_block(name_of(page), first, block["body"].splitlines()))
    return found


def _of_block(page: str, first: int, lines: list[str]) -> Iterator[Command]:
    prompted = lines[0].startswith(PROMPT)
    at = 0
    while at < len(lines):
        begin, end = at, _end(lines, at)
        at = end
        if prompted:
            while at < len(lines) and not lines[at].startswith(PROMPT):
                at += 1
        text = "\n".join(lines[begin:end]).removeprefix(PROMPT)
        if shlex.split(text.split("<<", 1)[0], comments=True):
            yield Command(page, first + begin, text, tuple(lines[end:at]))


def _end(lines: list[str], begin: int) -> int:
    """The line after a command: it continues after a backslash, within quotes and to the end of a here-document."""
    for end in range(begin + 1, len(lines) + 1):
        text = "\n".join(lines[begin:end])
        here = _HEREDOC.search(text)
        if here and here[1] not in lines[begin + 1 : end]:
            continue
        if here or (not text.endswith("\\") and _is_closed(text)):
            return end
    return len(lines)


def _is_closed(text: str) -> bool:
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return False
    return True


QUICKSTART = "docs/quickstart.md"
BY_PAGE = {name_of(page): commands(page) for page in PAGES}
ALL = [command for found in BY_PAGE.values() for command in found]
