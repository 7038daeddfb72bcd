# SPDX-License-Identifier: Apache-2.0
"""What a script writes as JSON may be anything; what comes of it fits into every database and every screen."""

from __future__ import annotations

import json

import pytest

from airflow_tpu.core.model.script_json import READ_LIMIT, parse, shorten


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("NaN", "NaN"),
        ("-Infinity", "-Infinity"),
        ("1e999", "Infinity"),
        ("-1e999", "-Infinity"),
        ("1" * 5000, "Infinity"),
        (str(2**63), float(2**63)),
        (str(2**63 - 1), 2**63 - 1),
        (str(-(2**63)), -(2**63)),
        ("0.5", 0.5),
        ("true", True),
        (r'"a\u0000b"', "a\N{REPLACEMENT CHARACTER}b"),
        (r'"\ud800"', "?"),
        (r'"\ud83d\ude00"', "\N{GRINNING FACE}"),
        ('[NaN, {"b": 1e999}]', ["NaN", {"b": "Infinity"}]),
    ],
    ids=lambda value: str(value)[:20],
)
def test_every_value_fits(written: str, read: object) -> None:
    """Numbers that JSON does not know, or nobody can hold, and text that PostgreSQL refuses, are replaced."""
    found = parse(f'{{"a": {written}}}'.encode())
    assert found == {"a": read}
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_names_fit_too() -> None:
    """A key is text like any other."""
    assert list(parse(rb'{"a\u0000": {"\ud800": 1}}')) == ["a\N{REPLACEMENT CHARACTER}"]


def test_what_is_nested_deeply_is_cut() -> None:
    """Twenty levels become sixteen, with a mark."""
    text = json.dumps(parse(b'{"a": ' + b"[" * 20 + b"1" + b"]" * 20 + b"}"))
    assert text == '{"a": ' + "[" * 16 + '"..."' + "]" * 16 + "}"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "is not JSON"),
        (b'{"a": 1}\n{"a": 2}\n', "is not JSON"),
        (b"\xff\xfe\xfd", "is not JSON"),
        (b'{"a": 1', "is not JSON"),
        (b"[1, 2, 3]", "holds a list, not an object"),
        (b"NaN", "holds a str, not an object"),
        (b"null", "holds a NoneType, not an object"),
        (b'{"a": ' + b"[" * 200_000, "is nested too deeply"),
        (b" " * (READ_LIMIT + 1), "is larger than 32 MiB"),
    ],
    ids=["empty", "lines", "bytes", "half", "list", "nan", "null", "deep", "large"],
)
def test_why_a_file_cannot_be_read(text: bytes, why: str) -> None:
    """The reason completes a sentence about the file."""
    with pytest.raises(ValueError, match=why):
        parse(text)


def test_small_entries_are_kept() -> None:
    """Of an object that is too large the figures stay, in their order; what is large is named."""
    data = {"confusion": [1.0] * 5000, "accuracy": 0.9, "loss": 0.1}
    assert shorten(data) == ({"accuracy": 0.9, "loss": 0.1}, ["confusion"])


def test_many_small_entries_are_bounded() -> None:
    """However small each entry is, all of them together stay below the limit."""
    kept, left_out = shorten({f"metric {number:05}": number for number in range(10_000)})
    assert len(json.dumps(kept)) <= 16 * 1024
    assert len(kept) + len(left_out) == 10_000
