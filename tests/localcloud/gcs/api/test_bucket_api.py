# SPDX-License-Identifier: Apache-2.0
"""What a listing of a bucket shows."""

from __future__ import annotations

from pathlib import Path

from tests.remote.checkpoint_server import KEY, PREFIX, CheckpointServer


def test_a_listing_hides_checksums_that_a_customers_key_encrypts(tmp_path: Path) -> None:
    """The object itself shows key and checksums; what was there before the bucket had a key is listed with its own."""
    with CheckpointServer(tmp_path) as server:
        server.bucket.blob(f"{PREFIX}/old").upload_from_string("text")
        server.encrypt()
        new = server.bucket.blob(f"{PREFIX}/new")
        new.upload_from_string("text")
        new.metadata = {"a": "b"}
        new.patch()
        listed = server.objects
        assert server.bucket.get_blob(f"{PREFIX}/new").crc32c == listed["old"].crc32c != ""
    assert (listed["new"].crc32c, listed["new"].md5_hash) == (None, None)
    assert listed["new"].kms_key_name == f"{KEY}/cryptoKeyVersions/1"
    assert listed["old"].kms_key_name is None
