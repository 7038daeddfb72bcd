# SPDX-License-Identifier: Apache-2.0
"""What the tests do with the commands of the documentation: run them, run something in their place, or say why not."""

from __future__ import annotations

import datetime as dt
import re
import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from tests.docs.pages import Command

HERE = Path(__file__).parent
START = "2026-09-03"
"""The day of the letter in the pages; a grant of that day ends some time, and the tests do not."""


@dataclass(frozen=True)
class Rule:
    """How the commands of one pattern are treated; what no rule names is run as it stands.

    :param pattern: shell pattern of commands on one line.
    :param why: why they are not run as they stand.
    :param page: the only page that this holds for; empty for all.
    :param test: file of another test that runs them.
    :param instead: what is run in their place; empty: nothing.
    :param before: what is run before them, of which the page does not speak.
    :param long: whether they are run in the soak only.
    """

    pattern: str
    why: str
    page: str = ""
    test: str = ""
    instead: str = ""
    before: str = ""
    long: bool = False

    def holds(self, command: Command) -> bool:
        """Whether it is about this command."""
        return self.page in ("", command.page) and fnmatchcase(command.plain, self.pattern)

    @property
    def is_run(self) -> bool:
        """Whether the command itself is run at all."""
        return bool(self.before or self.long) and not self.instead


_DATA = tomllib.loads((HERE / "commands.toml").read_text(encoding="utf-8"))
RULES = tuple(Rule(**row) for row in _DATA["rule"])
PAGE_BEFORE: dict[str, str] = _DATA["before"]
PAGE_AFTER: dict[str, str] = _DATA["after"]


def rule_of(command: Command) -> Rule | None:
    """The first rule that holds for a command."""
    return next((rule for rule in RULES if rule.holds(command)), None)


def script_of(command: Command, long: bool) -> str:
    """What is typed for a command; empty if it is left out.

    :param long: whether there is time for the long ones.
    """
    rule = rule_of(command)
    if rule is None:
        return filled(command.text)
    if rule.long and not long:
        return ""
    text = rule.instead or (command.text if rule.is_run else "")
    return "\n".join(part for part in (rule.before, filled(text)) if part) if text else ""


def filled(text: str) -> str:
    """A command in which a reader has filled in what the pages write in capitals."""
    day = dt.datetime.now(dt.UTC).date() - dt.timedelta(days=10)
    words = {**_DATA["words"], START: day.isoformat()}
    return re.sub(rf"\b({'|'.join(map(re.escape, words))})\b", lambda found: words[found[0]], text)
