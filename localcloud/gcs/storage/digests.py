# SPDX-License-Identifier: Apache-2.0
"""MD5 and CRC32C of content as it streams by, and what a client claims about them."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import google_crc32c

from localcloud.gcs.storage.errors import GCSError

_extend: Callable[[int, bytes], int] = google_crc32c.extend


class Digest:
    """Running MD5 and CRC32C of a byte stream, as base64 the way Google writes them."""

    def __init__(self) -> None:
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._crc32c = 0
        self.size = 0

    def update(self, data: bytes) -> None:
        """Add the next bytes."""
        self._md5.update(data)
        self._crc32c = _extend(self._crc32c, data)
        self.size += len(data)

    def copy(self) -> Digest:
        """Return an independent digest of the bytes so far."""
        other = Digest()
        other._md5, other._crc32c, other.size = self._md5.copy(), self._crc32c, self.size
        return other

    @property
    def md5(self) -> str:
        """MD5 of the bytes so far."""
        return base64.b64encode(self._md5.digest()).decode()

    @property
    def crc32c(self) -> str:
        """CRC32C (big-endian) of the bytes so far."""
        return base64.b64encode(self._crc32c.to_bytes(4, "big")).decode()


@dataclass(frozen=True)
class Claims:
    """What the client says the content hashes to; ``None`` where it says nothing.

    :param md5: base64 MD5.
    :param crc32c: base64 CRC32C.
    """

    md5: str | None = None
    crc32c: str | None = None

    @classmethod
    def of(cls, metadata: Mapping[str, object], headers: Iterable[tuple[str, str]] = ()) -> Claims:
        """Gather claims from object metadata and from the headers ``X-Goog-Hash`` and ``Content-MD5``."""
        found: dict[str, str | None] = {"md5": None, "crc32c": None}
        for key, value in headers:
            if key.lower() == "content-md5":
                found["md5"] = value.strip()
            elif key.lower() == "x-goog-hash":
                found.update(_hash_header(value))
        md5, crc32c = metadata.get("md5Hash"), metadata.get("crc32c")
        return cls(str(md5) if md5 else found["md5"], str(crc32c) if crc32c else found["crc32c"])

    def check(self, digest: Digest) -> None:
        """Compare with what has arrived.

        :raises GCSError: 400 if a claim does not hold.
        """
        if self.crc32c is not None and self.crc32c != digest.crc32c:
            raise _mismatch("CRC32C", self.crc32c, digest.crc32c)
        if self.md5 is not None and self.md5 != digest.md5:
            raise _mismatch("MD5 hash", self.md5, digest.md5)


def _hash_header(value: str) -> dict[str, str]:
    pairs = (item.strip().partition("=") for item in value.split(","))
    return {name: digest for name, _, digest in pairs if name in ("md5", "crc32c")}


def _mismatch(kind: str, claimed: str, computed: str) -> GCSError:
    message = f'Provided {kind} "{claimed}" doesn\'t match calculated {kind} "{computed}".'
    return GCSError(400, "invalid", message)
