# SPDX-License-Identifier: Apache-2.0
"""Decode a mail that was saved with its headers: parts, base64 and quoted-printable, by Python's own ``email``."""

from __future__ import annotations

import base64
import binascii
import quopri
import re
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message

_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]*:|[ \t]+\S|From ")
_MIME_HEADER = re.compile(r"(?:mime-version|content-(?:type|transfer-encoding))\s*:", re.IGNORECASE)
_BOUNDARY = re.compile(r"--(\S+)\s*")
_BASE64 = re.compile(r"^[A-Za-z0-9+/]{40,}(?:={0,2}\r?\n[A-Za-z0-9+/]+)*={0,2}$", re.MULTILINE)
_IS_QUOTED_PRINTABLE = re.compile(r"=\r?\n|=3D|=C2=A0|=E2=80|=20\s")
_ENCODED = ("base64", "quoted-printable")


def bodies(pasted: str) -> Iterator[tuple[int, str]]:
    """The texts of a pasted mail, each with the number of mails around it: a mail may be attached to another.

    :param pasted: a mail with or without headers, or any other text.
    """
    lines = pasted.splitlines()
    first = next((number for number, line in enumerate(lines) if _MIME_HEADER.match(line)), None)
    if first is None:
        yield 0, _bare(pasted)
        return
    while first and _HEADER.match(lines[first - 1]):
        first -= 1
    boundary = _BOUNDARY.fullmatch(lines[first - 1]) if first else None
    if boundary:  # the headers of the whole mail were left out
        first -= 1
        lines[first:first] = [f'Content-Type: multipart/mixed; boundary="{boundary[1]}"', ""]
    yield 0, _bare("\n".join(lines[:first]))
    # As bytes: with text that is not ASCII, `email` takes a string for damaged.
    yield from _texts(message_from_bytes("\n".join(lines[first:]).encode("utf-8", "replace")), 0)


def _texts(part: Message, depth: int) -> Iterator[tuple[int, str]]:
    inner = part.get_payload()
    if isinstance(inner, list):
        deeper = depth + (part.get_content_type() == "message/rfc822")
        for one in inner:
            if isinstance(one, Message):
                yield from _texts(one, deeper)
    elif part.get_content_maintype() == "text":
        yield depth, _text(part)


def _text(part: Message) -> str:
    raw = part.get_payload(decode=True)
    if not isinstance(raw, bytes):
        return ""
    encoded = str(part.get("Content-Transfer-Encoding", "")).strip().lower() in _ENCODED
    # What was not encoded came through the clipboard, whatever the header says.
    charset = (part.get_content_charset() if encoded else None) or "utf-8"
    try:
        return raw.decode(charset, "replace")
    except LookupError:
        return raw.decode("utf-8", "replace")


def _bare(text: str) -> str:
    """A text without headers, decoded if it looks encoded."""
    decoded = _BASE64.sub(lambda found: _from_base64(found.group()), text)
    if _IS_QUOTED_PRINTABLE.search(decoded):
        return quopri.decodestring(decoded.encode("utf-8", "replace")).decode("utf-8", "replace")
    return decoded


def _from_base64(block: str) -> str:
    try:
        return base64.b64decode("".join(block.split()), validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return block
