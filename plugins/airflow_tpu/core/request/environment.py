# SPDX-License-Identifier: Apache-2.0
"""Arguments and environment of the user's script, and the secrets that must not be among them.

Both are stored in Airflow's database, shown in its UI and written to the VM's job file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from airflow_tpu.core.request.fields import Invalid, plain
from airflow_tpu.core.request.secret_text import HINT, is_named_secret, looks_secret, named_secret

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LIMIT = 100_000  # bytes; Linux takes 128 KiB for one argument (MAX_ARG_STRLEN)
_CONTINUED = re.compile(r"\\\r?\n")
# In this order: '...' stays as it is, "..." may be continued, a backslash joins lines. A form field of one line turns
# the pasted end of a line into a blank: then the backslash stands alone, and vanishes too. Any other pair stays.
_PARTS = re.compile(
    r"""(?P<single>'[^']*')|(?P<double>"(?:[^"\\]|\\.)*")|(?P<joint>\\\r?\n|(?<!\S)\\(?=[ \t]|\Z))|\\.""", re.DOTALL
)


def arguments(value: Any) -> tuple[str, ...]:
    """Arguments of the script, split as a shell splits words; nothing is expanded here, ``{{ ds }}`` stays as typed.

    :raises Invalid: for an open quote, a secret or more than 100 kB.
    """
    given = [_word(word) for word in value] if isinstance(value, list | tuple) else [plain(value)]
    whole = "\n".join(given)
    check_text(whole)
    return tuple(given if isinstance(value, list | tuple) else split_words(whole))


def check_text(text: str) -> None:
    """Check what becomes part of a command line.

    :raises Invalid: a secret, a NUL character or more than 100 kB.
    """
    if len(text.encode()) > _LIMIT:
        raise Invalid(f"is longer than {_LIMIT} bytes; put it into a file beside the script")
    if "\x00" in text:
        raise Invalid("has a NUL character")
    if looks_secret(text):
        raise Invalid(HINT, secret=True)
    name = named_secret(text)
    if name:
        raise Invalid(f"{name} {HINT}", secret=True)


def joined_lines(text: str) -> str:
    """Return a text whose continued lines are one: a command that is pasted from a README may span several."""
    return _PARTS.sub(_joined, text.rstrip())


def split_words(line: str) -> list[str]:
    """Return the words of a line as a shell splits them; nothing is expanded.

    :raises Invalid: a quote is open.
    """
    try:
        return shlex.split(joined_lines(line))
    except ValueError as error:
        raise Invalid(f"cannot be split into words: {str(error).lower()}") from None


def _joined(part: re.Match[str]) -> str:
    if part["joint"] is not None:
        return ""
    return _CONTINUED.sub("", part[0]) if part["double"] is not None else part[0]


def environment(value: Any) -> dict[str, str]:
    """Environment variables: one ``KEY=VALUE`` a line, or a mapping.

    :raises Invalid: for a bad or reserved name, a secret or more than 100 kB.
    """
    pairs = list(value.items()) if isinstance(value, Mapping) else list(_pairs(plain(value)))
    found: dict[str, str] = {}
    for name, content in pairs:
        if name in found:
            raise Invalid(f"has {name} twice")
        found[name] = _word(content)
        _check(name, found[name])
    if len("\n".join(found.values()).encode()) > _LIMIT:
        raise Invalid(f"is longer than {_LIMIT} bytes")
    return found


def _word(value: Any) -> str:
    """One word, which a DAG may give as a number."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else plain(value)


def _pairs(lines: str) -> Iterable[tuple[str, str]]:
    for number, line in enumerate(lines.splitlines(), start=1):
        if not line.strip():
            continue
        name, equals, content = line.partition("=")
        if not equals:
            raise Invalid(f"line {number} is not KEY=VALUE")
        yield name.strip(), content


def check_name(name: Any) -> None:
    """Check the name of a variable.

    :raises Invalid: it has other characters, or is one of this package.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Invalid("has a name that is not made of letters, digits and '_'")
    if name.startswith("TRC_"):
        raise Invalid(f"{name}: names with TRC_ are set by this package")


def _check(name: Any, content: str) -> None:
    check_name(name)
    if "\x00" in content:
        raise Invalid(f"{name} has a NUL character")
    if looks_secret(content) or is_named_secret(name, content):
        raise Invalid(f"{name} {HINT}")
