# SPDX-License-Identifier: Apache-2.0
"""Write docs/trouble.md: what happened to people with TPUs, what this project does about it, and which test shows it.

Usage: ``trouble_page.py > docs/trouble.md``. The rows are in tests/trouble/, one file a group; a test demands that each
row names tests that exist, or says why there is none.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[1]
ROWS = ROOT / "tests" / "trouble"
UNTRIED = "not tried yet: "
PAGE = re.compile(r"/(?P<repository>[^/]+/[^/]+)(?:/(?:issues|pull)/(?P<number>\d+))?")


class Proof(Enum):
    """How far a row is proven; the value is what the page calls it."""

    TESTED = "proven by tests that run without Google"
    IMPOSSIBLE = "not possible here, with the reason"
    UNTRIED = "not tried yet"


@dataclass(frozen=True)
class Row:
    """One trouble.

    :param name: letter of its group and number.
    :param what: what happened to people.
    :param sources: public reports of it.
    :param does: what this project does.
    :param tests: tests that prove it, as pytest names them.
    :param why_not: why there is no test; empty if there is one.
    """

    name: str
    what: str
    sources: tuple[str, ...]
    does: str
    tests: tuple[str, ...] = ()
    why_not: str = ""

    @classmethod
    def read(cls, name: str, fields: dict[str, Any]) -> Row:
        """Take a row from its table.

        :raises TypeError: if a field is missing or unknown.
        """
        lists = {key: tuple(value) for key, value in fields.items() if isinstance(value, list)}
        return cls(name, **{**fields, **lists})

    @property
    def proof(self) -> Proof:
        """How far it is proven."""
        if self.tests:
            return Proof.TESTED
        return Proof.UNTRIED if self.why_not.startswith(UNTRIED) else Proof.IMPOSSIBLE


@dataclass(frozen=True)
class Group:
    """Rows of one letter.

    :param title: heading.
    :param rows: in their order.
    """

    title: str
    rows: tuple[Row, ...]


def groups() -> list[Group]:
    """All groups, in the order of their letters."""
    return [_group(tomllib.loads(path.read_text(encoding="utf-8"))) for path in sorted(ROWS.glob("*.toml"))]


def _group(tables: dict[str, Any]) -> Group:
    rows = (Row.read(name, fields) for name, fields in tables.items() if name != "title")
    return Group(str(tables["title"]), tuple(rows))


def page() -> str:
    """The whole page."""
    found = groups()
    count = Counter(row.proof for group in found for row in group.rows)
    figures = [f"- {count[proof]} are {proof.value}" for proof in Proof]
    return "\n".join([*HEAD, *figures, *(line for group in found for line in table(group)), ""])


def table(group: Group) -> Iterator[str]:
    """Heading and table of one group."""
    yield from ("", f"## {group.title}", "", "| row | what happened to people | what this project does | proof |")
    yield "|---|---|---|---|"
    for row in group.rows:
        told = " ".join([row.what, *map(link, row.sources)])
        proof = "<br>".join(map(link_to_test, row.tests)) or row.why_not
        yield f"| {row.name} | {told} | {row.does} | {proof} |"


def link(source: str) -> str:
    """A report as people write it: ``repository#number``.

    :raises ValueError: if it is no page of a public repository.
    """
    parts = urlsplit(source)
    found = PAGE.fullmatch(parts.path)
    if found is None or (parts.scheme, parts.netloc) != ("https", "github.com"):
        raise ValueError(f"{source!r} is no issue, pull request or repository of GitHub")
    number = found["number"]
    return f"[{found['repository']}{f'#{number}' if number else ''}]({source})"


def link_to_test(test: str) -> str:
    """The test's name, leading to its file."""
    path, name = test.split("::")
    return f"[`{name.removeprefix('test_')}`](../{path})"


HEAD = [
    "# Trouble",
    "",
    "<!-- Written by scripts/trouble_page.py from tests/trouble/; do not edit. -->",
    "",
    "What has happened to people who run machine learning on Cloud TPUs, from Airflow or otherwise; what this project",
    "does about it; and which test shows that it does. Search the page for a word of your error, for the number of an",
    "issue, or for a state of the API. The errors of this package itself, and what the Cloud TPU API says, are in",
    "[errors.md](errors.md).",
    "",
    "A test is run by the second half of its name: `pytest tests -k NAME`. Of the rows",
    "",
]

if __name__ == "__main__":
    print(page(), end="")
