"""Split what people type into words, as a shell does; a command that is pasted from a README may span several lines."""

from __future__ import annotations

import re
import shlex

from airflow_tpu.core.request.fields import Invalid

_CONTINUED = re.compile(r"\\\r?\n")
# In this order: '...' stays as it is, "..." may be continued, a backslash joins lines. A form field of one line turns
# the pasted end of a line into a blank: then the backslash stands alone, and vanishes too. Any other pair stays.
_PARTS = re.compile(
    r"""(?P<single>'[^']*')|(?P<double>"(?:[^"\\]|\\.)*")|(?P<joint>\\\r?\n|(?<!\S)\\(?=[ \t]|\Z))|\\.""", re.DOTALL
)


def joined_lines(text: str) -> str:
    """Return a text whose continued lines are one."""
    return _PARTS.sub(_joined, text.rstrip())


def split_words(line: str) -> list[str]:
    """Return the words of a line; nothing is expanded.

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
