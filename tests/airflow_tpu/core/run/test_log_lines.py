# SPDX-License-Identifier: Apache-2.0
"""Lines out of bytes that are cut anywhere."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_tpu.core.run.log_lines import FEW_LINES, LINE_LIMIT, RECORD_LIMIT, LineAssembler, records


def lines_of(*chunks: bytes, limit: int = 4000) -> list[str]:
    """All lines of some chunks, the unfinished one included."""
    assembler = LineAssembler(limit)
    found = [line for chunk in chunks for line in assembler.feed(chunk)]
    return found + assembler.close()


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ((b"a\nb\n",), ["a", "b"]),
        ((b"a\n\nb",), ["a", "", "b"]),
        ((b"a\r\nb\r\n",), ["a", "b"]),
        ((b"a\r", b"\nb"), ["a", "b"]),
        ((b"no newline at the end",), ["no newline at the end"]),
        ((b"1%\r2%\r", b"3%\rdone\n"), ["done"]),
        ((b"1%\r2%\r\n",), ["2%"]),
        ((b"50%\r",), ["50%"]),
        ((b"\r\r\n",), [""]),
        ((b"caf\xe9\n",), ["caf\ufffd"]),
        ((b"x" * 16383 + b"\xe2\x82", b"\xac\n"), ["x" * 4000] * 4 + ["x" * 383 + "€"]),
        ((b"\xe2\x82",), ["\ufffd"]),
        ((b"a\0b\n",), ["a\ufffdb"]),
        ((b"\x1b[31mred\x1b[0m\n",), ["\x1b[31mred\x1b[0m"]),
        ((b"a\xc2\x85b\x0cc\xe2\x80\xa8d\n",), ["a\x85b\x0cc\u2028d"]),
        ((b"",), []),
    ],
)
def test_lines(chunks: tuple[bytes, ...], lines: list[str]) -> None:
    """Each input gives the lines that a person would expect of it."""
    assert lines_of(*chunks) == lines


def test_a_line_longer_than_the_limit_is_continued() -> None:
    """A line that never ends comes out in pieces at once, and none of it is lost or kept for long."""
    assembler = LineAssembler(limit=10)
    early = assembler.feed(b"x" * 25)
    assert early == ["x" * 10, "x" * 10]
    assert assembler.close() == ["x" * 5]


def test_a_day_of_progress_bar_is_one_line() -> None:
    """Of 86,400 updates of a progress bar the last is left, and on the way the current state can be asked for."""
    assembler = LineAssembler()
    assert [assembler.feed(b"\rstep %d" % step) for step in range(86_400)] == [[]] * 86_400
    assert assembler.current == "step 86399"
    assert assembler.feed(b"\ndone") == ["step 86399"]


def test_an_assembler_can_be_used_again() -> None:
    """After the end nothing is left: half a character does not spoil the next log."""
    assembler = LineAssembler()
    assembler.feed(b"\xe2\x82")
    assembler.close()
    assert assembler.feed(b"\xacnext\n") == ["\ufffdnext"]
    assert assembler.close() == []


def test_a_limit_below_one_is_refused() -> None:
    """No line could ever be made."""
    with pytest.raises(ValueError, match="at least one"):
        LineAssembler(0)


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=8), st.integers(1, 50))
def test_where_the_bytes_are_cut_makes_no_difference(data: bytes, cuts: list[int], limit: int) -> None:
    """Without carriage returns the lines depend on the bytes alone, and joined they are the decoded text."""
    data = data.replace(b"\r", b"")
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[start:end] for start, end in itertools.pairwise(edges)]
    lines = lines_of(*pieces, limit=limit)
    assert "".join(lines) == data.decode(errors="replace").replace("\0", "\ufffd").replace("\n", "")
    assert all(len(line) <= limit for line in lines)
    assert lines == lines_of(data, limit=limit)


@given(st.lists(st.sampled_from([b"a", b"\r", b"\n", b"bc"]), max_size=30))
def test_carriage_returns_are_collapsed_wherever_the_bytes_are_cut(parts: list[bytes]) -> None:
    """One byte at a time gives the same lines as all at once."""
    data = b"".join(parts)
    assert lines_of(*(data[i : i + 1] for i in range(len(data)))) == lines_of(data)


def test_few_lines_are_a_record_each() -> None:
    """What a person watches has the time of each line."""
    lines = [f"step {number}" for number in range(FEW_LINES)]
    assert list(records(lines)) == lines
    assert list(records([])) == []


@given(st.lists(st.text("ab ", max_size=LINE_LIMIT), min_size=FEW_LINES + 1, max_size=200))
def test_many_lines_are_few_records(lines: list[str]) -> None:
    """Nothing is lost or moved, and no record is much longer than its limit or could have been joined to the next."""
    found = list(records(lines))
    assert "\n".join(found).split("\n") == lines
    assert all(len(text) <= RECORD_LIMIT + LINE_LIMIT for text in found)
    assert all(len(one) + len(other) > RECORD_LIMIT - LINE_LIMIT for one, other in itertools.pairwise(found))
