# SPDX-License-Identifier: Apache-2.0
"""What people type to start a training, as the program and its arguments that run it without a terminal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_tpu.core.request.environment import check_text, environment, joined_lines, split_words
from airflow_tpu.core.request.fields import Invalid, plain

SHELL = ("bash", "-o", "pipefail")
"""A training that fails in the middle of a pipe (``train.py |& tee log``) has failed."""

WHOLE_LINE = ("bash", "-e", "-o", "pipefail", "-c")
"""Of several commands the first that fails ends it: an installation that has failed is not trained with."""

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_SINGLE = re.compile(r"'[^']*'|\\.", re.DOTALL)
_QUOTED = re.compile(r"""'[^']*'|"(?:[^"\\]|\\.)*"|\\.""", re.DOTALL)
_OPERATOR = re.compile(r"[|&;<>()\n]|(?<!\S)#")
_PROMPT = re.compile(r"^[ \t]*(?:\$[ \t]+|!(?=[A-Za-z./]))", re.MULTILINE)
"""What stands before a command that is copied from a terminal or a notebook."""

_BACKGROUND = re.compile(r"(?<![&>|])&\s*\Z")
_IN_FOREGROUND = "\nwait $!"
"""A run ends with its command, so one that was left in the background is waited for."""

_EXPANDED = re.compile(r"\$\(|`|\$(?!\{?TRC_)[A-Za-z_{]|(?<!\S)~")


@dataclass(frozen=True)
class Command:
    """One command line.

    :param words: program and arguments.
    :param environment: variables that are set in front of it (``LR=1e-3 python train.py``).
    :param text: as it was typed.
    """

    words: tuple[str, ...]
    text: str
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def needs_shell(self) -> bool:
        """Whether a shell runs it as a whole, since it has pipes, lists, redirections or expansions."""
        return self.words[:-1] == WHOLE_LINE


def command(value: Any) -> Command | None:
    """Read a command line; None for an empty one.

    :raises Invalid: an open quote, a secret, a variable that may not be set, or more than 100 kB.
    """
    text = _PROMPT.sub("", joined_lines(plain(value))).strip()
    if not text:
        return None
    check_text(text)
    words = split_words(text)
    if _is_for_a_shell(text):
        last = _IN_FOREGROUND if _BACKGROUND.search(_QUOTED.sub("_", text)) else ""
        return Command((*WHOLE_LINE, text + last), text)
    count = next((number for number, word in enumerate(words) if not _ASSIGNMENT.match(word)), len(words))
    if count == len(words):
        raise Invalid("sets variables and starts nothing; put variables into Environment")
    given = environment(dict(word.split("=", 1) for word in words[:count]))
    return Command(_with_pipefail(words[count:]), text, given)


def _with_pipefail(words: list[str]) -> tuple[str, ...]:
    return (*SHELL, *words[1:]) if words[0] == "bash" and "-c" not in words[1:2] else tuple(words)


def _is_for_a_shell(text: str) -> bool:
    """Whether a line has pipes, lists, redirections, several lines, or what only a shell expands."""
    return bool(_OPERATOR.search(_QUOTED.sub("_", text)) or _EXPANDED.search(_SINGLE.sub("_", text)))
