# SPDX-License-Identifier: Apache-2.0
"""Lines for people out of the raw bytes of a log; the bytes themselves are kept elsewhere, unharmed."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence

LINE_LIMIT = 4000  # characters; a longer line freezes the log view
FEW_LINES = 50
"""Lines that arrive together and still get a record of the log each, with its own time, as a person watches them."""
RECORD_LIMIT = 64 * 1024
"""Characters of a record with many lines. Airflow needs a third of a millisecond for each record, however short."""


def records(lines: Sequence[str]) -> Iterator[str]:
    """Return what to write to the log for lines that have arrived together: each by itself, or many as one text.

    A script that prints faster than Airflow writes records would otherwise be over long before that is noticed.
    """
    if len(lines) <= FEW_LINES:
        yield from lines
        return
    first, length = 0, 0
    for number, line in enumerate(lines):
        if length + len(line) > RECORD_LIMIT:
            yield "\n".join(lines[first:number])
            first, length = number, 0
        length += len(line) + 1
    yield "\n".join(lines[first:])


class LineAssembler:
    """Turns chunks of bytes, cut anywhere, into lines.

    Bytes that are not UTF-8 and NUL become U+FFFD. A carriage return starts the line again, as on a terminal, so of
    a progress bar only the last state before the next line remains. A line longer than ``limit`` is continued on
    the next. Every character that a terminal would still show comes out once :meth:`close` has been called.

    :param limit: most characters of one line.
    """

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        if limit < 1:
            raise ValueError(f"limit {limit}: a line holds at least one character")
        self._limit = limit
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._open = ""  # the unfinished line; ends in a carriage return if one was its last character

    def feed(self, data: bytes) -> list[str]:
        """Take the next bytes; return the lines they complete."""
        return self._take(self._decoder.decode(data))

    def close(self) -> list[str]:
        """Return what is left when no more bytes come; afterwards the assembler is as new."""
        lines = self._take(self._decoder.decode(b"", final=True))
        self._decoder.reset()
        if self._open:
            lines.append(self.current)
            self._open = ""
        return lines

    @property
    def current(self) -> str:
        """The unfinished line as a terminal shows it now: the state of a progress bar, say."""
        return self._open.rstrip("\r")

    def _take(self, text: str) -> list[str]:
        *finished, rest = (self._open + text.replace("\0", "\N{REPLACEMENT CHARACTER}")).split("\n")
        lines = [piece for line in finished for piece in self._pieces(_shown(line).rstrip("\r"))]
        *full, self._open = self._pieces(_shown(rest))
        return lines + full

    def _pieces(self, line: str) -> list[str]:
        """Cut a line at the limit; the last piece is never longer, and empty only if the line is."""
        return [line[start : start + self._limit] for start in range(0, len(line), self._limit)] or [""]


def _shown(line: str) -> str:
    """Drop what later carriage returns have overwritten; one at the end has overwritten nothing yet."""
    body = line.rstrip("\r")
    return line[body.rfind("\r") + 1 :]
