# SPDX-License-Identifier: Apache-2.0
"""CRC-32C, in plain Python and by google-crc32c."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trc import crc32c
from trc.crc32c import crc32c_python, extend_crc32c

VECTORS = [
    (b"\x00" * 32, 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (b"123456789", 0xE3069283),
    (b"", 0),
]


@pytest.mark.parametrize("extend", [crc32c_python, extend_crc32c])
@pytest.mark.parametrize(("data", "expected"), VECTORS)
def test_the_checksum_is_crc32c(extend: Callable[[int, bytes], int], data: bytes, expected: int) -> None:
    """Plain Python and the fast library agree with the published vectors."""
    assert extend(0, data) == expected


@given(st.binary(max_size=400), st.integers(0, 400))
def test_a_checksum_can_be_extended_anywhere(data: bytes, cut: int) -> None:
    """Two parts one after the other give the checksum of the whole, in both implementations."""
    whole = extend_crc32c(0, data)
    assert crc32c_python(crc32c_python(0, data[:cut]), data[cut:]) == whole
    assert extend_crc32c(extend_crc32c(0, data[:cut]), data[cut:]) == whole


def test_a_checksum_is_spelt_as_cloud_storage_spells_it(tmp_path: Path) -> None:
    """Base64 of four bytes, most significant first: the crc32c field of an object can be compared directly."""
    (tmp_path / "file").write_bytes(b"123456789")
    assert crc32c.crc32c_of(tmp_path / "file") == "4waSgw=="
