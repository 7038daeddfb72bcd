# SPDX-License-Identifier: Apache-2.0
"""Takes the secrets out of what the command prints, before a byte of it is on the disk of this machine."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import threading
from typing import Callable, Iterable, Iterator
from urllib.parse import quote

MASK = b"***"
_SHORTEST = 5  # characters; a shorter value is a part of ordinary words
_SHORTEST_LINE = 8  # of a value of several lines: its other lines may be braces
_SHORTEST_ENCODED = 8  # bytes of a value that is looked for in base64
_CHUNK = 65536
_PATIENCE_SECS = 10.0  # for the end of the output, when everything that wrote it has ended


def forms(value: str) -> Iterator[bytes]:
    """Yield the forms in which a value is looked for: itself, its lines, and its usual encodings."""
    yield value.encode("utf-8", "surrogateescape")
    for line in value.splitlines():
        if len(line.strip()) >= _SHORTEST_LINE:
            yield line.strip().encode("utf-8", "surrogateescape")
    yield json.dumps(value)[1:-1].encode("ascii")
    yield repr(value)[1:-1].encode("utf-8", "backslashreplace")
    for safe in ("", "/"):
        yield quote(value, safe=safe, errors="surrogateescape").encode("ascii")
    raw = value.encode("utf-8", "surrogateescape")
    if len(raw) >= _SHORTEST_ENCODED:
        for ahead in range(3):  # what stands before it in the encoded text, such as "user:", shifts its bits
            for encode in (base64.b64encode, base64.urlsafe_b64encode):
                whole = encode(b"\0" * ahead + raw)
                yield whole[-(-8 * ahead // 6) : 8 * (ahead + len(raw)) // 6]


class Redactor:
    """Masks values in a stream, wherever it is cut.

    :param values: what is masked.
    :param write: gets what may be shown.
    """

    def __init__(self, values: Iterable[str], write: Callable[[bytes], None]) -> None:
        found = {form for value in values if len(value) >= _SHORTEST for form in forms(value)}
        self._forms = sorted(found, key=len, reverse=True)  # of two that begin alike, the longer one
        self._pattern = re.compile(b"|".join(map(re.escape, self._forms)) or b"(?!)")
        self._write = write
        self._held = b""

    def feed(self, data: bytes) -> None:
        """Take the next bytes; the end of them is held back while it may be the beginning of a value."""
        self._held += data
        keep = self._undecided()
        for match in self._pattern.finditer(self._held):
            if match.start() < keep < match.end():
                keep = match.start()
        if keep:
            self._write(self._pattern.sub(MASK, self._held[:keep]))
            self._held = self._held[keep:]

    def close(self) -> None:
        """Write what was held back: nothing follows."""
        self._write(self._pattern.sub(MASK, self._held))
        self._held = b""

    def _undecided(self) -> int:
        """Return where the bytes begin that may become a value with those that follow."""
        end = len(self._held)
        first = end
        for form in self._forms:
            at = self._held.find(form[:1], max(0, end - len(form) + 1))
            while -1 < at < first:
                if form.startswith(self._held[at:]):
                    first = at
                at = self._held.find(form[:1], at + 1)
        return first


class MaskedOutput:
    """The descriptor that commands write to: the log itself, or a pipe whose reader masks values.

    :param log: descriptor of the log.
    :param values: what is masked; without any the log is written to directly.
    """

    def __init__(self, log: int, values: Iterable[str]) -> None:
        self.descriptor = log
        self._log = log
        self._redactor = Redactor(values, self._append)
        self._thread: threading.Thread | None = None
        if any(values):
            readable, self.descriptor = os.pipe()
            self._thread = threading.Thread(target=self._copy, args=(readable,), daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Wait until everything that was printed is in the log; nothing is printed any more."""
        if self._thread is not None:
            os.close(self.descriptor)
            self._thread.join(_PATIENCE_SECS)
            self._thread = None

    def _copy(self, readable: int) -> None:
        with os.fdopen(readable, "rb", buffering=0) as pipe:
            while True:
                data = pipe.read(_CHUNK)
                if not data:
                    break
                self._redactor.feed(data)
        self._redactor.close()

    def _append(self, data: bytes) -> None:
        view = memoryview(data)
        with contextlib.suppress(OSError):  # a full disk must not stop the command, which waits for its pipe
            while view:
                view = view[os.write(self._log, view) :]
