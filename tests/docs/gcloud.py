# SPDX-License-Identifier: Apache-2.0
"""Whether a command of Google's command line is spelled as its reference says; none is on this machine to be asked."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.docs.pages import words

_DATA: dict[str, Any] = tomllib.loads(Path(__file__).with_name("gcloud.toml").read_text(encoding="utf-8"))
_ENDS = {"|", ">", ">>", "&&", ";", "--"}


@dataclass(frozen=True)
class Form:
    """What one command takes.

    :param name: group and verb, without ``gcloud``.
    :param words: how many arguments it has that are no flags.
    :param needs: flags with a value that must be there.
    :param takes: flags with a value that may be there.
    :param switches: flags without one.
    :param one_of: flags with a value of which one must be there, and no second one.
    """

    name: str
    words: int
    needs: Sequence[str] = ()
    takes: Sequence[str] = ()
    switches: Sequence[str] = ()
    one_of: Sequence[str] = ()

    def problem(self, arguments: Sequence[str]) -> str:
        """What is wrong with the arguments; empty if nothing is."""
        values = {*self.needs, *self.takes, *self.one_of, *_DATA["wide"]}
        switches = {*self.switches, *_DATA["wide_switches"]}
        given, count, rest = set(), 0, list(arguments)
        while rest:
            name, sign, _ = rest.pop(0).partition("=")
            flag = name.removeprefix("--")
            if name == flag:
                count += 1
                continue
            given.add(flag)
            if flag not in (switches if flag in switches and not sign else values):
                return f"{self.name} has no flag {name}"
            if flag in values and not sign and (not rest or rest.pop(0).startswith("--")):
                return f"{name} has no value"
        missing = sorted(set(self.needs) - given)
        if missing:
            return f"{self.name} needs --{missing[0]}"
        if self.one_of and len(given & set(self.one_of)) != 1:
            return f"{self.name} needs one of {', '.join(self.one_of)}"
        return "" if count == self.words else f"{self.name} has {count} argument(s), not {self.words}"


FORMS = {row["name"]: Form(**row) for row in _DATA["command"]}


def gcloud_problem(text: str) -> str:
    """Why a ``gcloud`` command would be refused; empty if it would not."""
    given = words(text)[1:]
    end = next((number for number, word in enumerate(given) if word in _ENDS), len(given))
    given = given[:end]
    for length in range(len(given), 0, -1):
        form = FORMS.get(" ".join(given[:length]))
        if form:
            return form.problem(given[length:])
    return f"gcloud {' '.join(given[:3])}: no command of gcloud.toml"
