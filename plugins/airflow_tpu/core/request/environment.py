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

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LIMIT = 100_000  # bytes; Linux takes 128 KiB for one argument (MAX_ARG_STRLEN)
# Names that end so hold secrets; TOKENIZERS_PARALLELISM and GOOGLE_APPLICATION_CREDENTIALS (a path) do not.
_SECRET_NAME = re.compile(r"(^|_)(PASSWORD|PASSWD|SECRET|API_?KEY|PRIVATE_?KEY|ACCESS_?KEY)$", re.IGNORECASE)
# A token of a service is long; PAD_TOKEN=[PAD] and MAX_TOKEN=512 are a language model's.
_TOKEN_NAME = re.compile(r"(^|_)TOKEN$", re.IGNORECASE)
_TOKEN_LENGTH = 8
_TOKEN_IN_TEXT = re.compile(r"(?=[A-Za-z]*\d)[A-Za-z0-9]{16}")  # <|reserved_special_token_250|> is a model's
_SECRET_VALUE = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|\"private_key\"\s*:"
    r"|\bya29\.[\w-]{20,}"
    r"|\bAIza[\w-]{35}"
    r"|\bgh[opsu]_[A-Za-z0-9]{30,}|\bgithub_pat_\w{30,}"
    r"|\bhf_[A-Za-z0-9]{30,}"
    r"|\bsk-[\w-]{20,}"
    r"|\bAKIA[A-Z0-9]{16}\b"
    r"|\bxox[abp]-[\w-]{20,}"
    r"|\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\."
    r"|\bwandb\s+login\s+(?:-\S+\s+)*[0-9a-f]{40}"
)
# NAME=VALUE, --name VALUE, --name=VALUE, "name": "VALUE"
_PAIR = re.compile(
    r"""(?:(?<![\w$.-])(?P<variable>[A-Za-z_]\w*)=|(?<!\S)--?(?P<option>[A-Za-z][\w.-]*)(?:=|\s+)"""
    r"""|["'](?P<key>[A-Za-z_]\w*)["']\s*:\s*(?=["']))["']?(?P<value>[^\s"']*)"""
)
# A variable, a template, a placeholder, an expression, an option, a path or a file: no secret itself.
_ELSEWHERE = re.compile(
    r"[$<(\[{/.-]|gs://|projects/|.*[(\[]|.*\.[a-z]{2,4}$|(?i:true|false|none|null|yes|no|your\w*|x*|\d)$"
)
_EXPORT = re.compile(r"^\s*export\s+")
_WHOLLY_QUOTED = re.compile(r"""\s*(["'])((?:(?!\1).)*)\1\s*""")  # a pasted line of a shell, or of a .env file
_CONTINUED = re.compile(r"\\\r?\n")
_HINT = "looks like a secret; keep it in an Airflow connection or Variable, and name that in the field secrets"
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
        raise Invalid(_HINT, secret=True)
    name = _typed_secret(text)
    if name:
        raise Invalid(f"{name} {_HINT}", secret=True)


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
    """Environment variables: one ``KEY=VALUE`` a line, as a shell or a .env file has it, or a mapping.

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
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, content = line.partition("=")
        if not equals:
            raise Invalid(f"line {number} is not KEY=VALUE")
        quoted = _WHOLLY_QUOTED.fullmatch(content)
        yield _EXPORT.sub("", name).strip(), quoted[2] if quoted else content


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
    if looks_secret(content) or _is_named_secret(name, content):
        raise Invalid(f"{name} {_HINT}")


def looks_secret(text: str) -> bool:
    """Whether a text has the form of a key or a token of a well-known service."""
    return _SECRET_VALUE.search(text) is not None


def _is_named_secret(name: str, content: str) -> bool:
    """Whether a variable holds a secret by its name.

    Airflow masks nothing shorter than five characters, so a short password is refused like a long one.
    """
    if not content or content.startswith(("/", "gs://", "projects/")):
        return False
    return bool(_SECRET_NAME.search(name) or (_TOKEN_NAME.search(name) and len(content) >= _TOKEN_LENGTH))


def _typed_secret(text: str) -> str:
    """Return the name that a secret is given to in a command line, empty if there is none."""
    for pair in _PAIR.finditer(text):
        given, value = pair["variable"] or pair["option"] or pair["key"], pair["value"]
        name = given.rpartition(".")[2].replace("-", "_")
        if _ELSEWHERE.match(value) or not _is_named_secret(name, value):
            continue
        if _SECRET_NAME.search(name) or _TOKEN_IN_TEXT.search(value):
            return given
    return ""
