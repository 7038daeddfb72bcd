# SPDX-License-Identifier: Apache-2.0
"""Commands that are pasted from a README become the words that a shell would make of them."""

from __future__ import annotations

import re
import shlex
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_tpu.core.request.environment import split_words
from airflow_tpu.core.request.fields import Invalid


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--lr 1e-3 \\\n  --bs 8", ["--lr", "1e-3", "--bs", "8"]),
        ("--lr 1e-3 \\\r\n  --bs 8", ["--lr", "1e-3", "--bs", "8"]),
        ("--lr 1e-3 \\   --bs 8", ["--lr", "1e-3", "--bs", "8"]),  # as a field of one line shows it
        ("--lr 1e-3 \\", ["--lr", "1e-3"]),
        ("--lr 1e-3 \\\n", ["--lr", "1e-3"]),
        ("--na\\\nme", ["--name"]),
        ('"a \\\n b"', ["a  b"]),
        ("'a \\\n b'", ["a \\\n b"]),
        ("a\\ b", ["a b"]),
        ('"a \\ b"', ["a \\ b"]),
        ("a \\\\ b", ["a", "\\", "b"]),
        ("{{ ds }}", ["{{", "ds", "}}"]),
    ],
)
def test_joined_lines_vanish(line: str, words: list[str]) -> None:
    """A backslash at the end of a line joins it with the next one, outside of single quotes."""
    assert split_words(line) == words


def test_an_open_quote_is_named() -> None:
    """A line that cannot be split is refused with the reason."""
    with pytest.raises(Invalid, match="no closing quotation"):
        split_words("--name 'a")


@settings(max_examples=60)
@given(st.text(alphabet="ab -'\"\\\n", max_size=12))
def test_words_are_those_of_a_shell(line: str) -> None:
    """What a shell takes is split as it does, but for a backslash that stands alone, or at the end before spaces."""
    command = f"for word in {line}\ndo printf '%s\\0' \"$word\"; done"
    joined = line.replace("\\\n", "")
    if "\n" in joined or joined.strip() in ("", "\\") or " \\ " in f" {joined}" or re.search(r"\\ +$", joined):
        return
    try:
        found = split_words(line)
    except Invalid:
        return
    done = subprocess.run(["sh", "-c", command], capture_output=True, check=False)
    if done.returncode == 0:
        assert found == done.stdout.decode().split("\0")[:-1], shlex.quote(line)
