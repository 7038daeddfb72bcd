# SPDX-License-Identifier: Apache-2.0
"""What people paste as the address of their project."""

from __future__ import annotations

import pytest

from airflow_tpu.core.request.fields import Invalid
from airflow_tpu.core.request.references.source_address import (
    Address,
    ArchiveAddress,
    FolderAddress,
    GitAddress,
    source_address,
)

REPO = "https://github.com/org/repo"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("repo", FolderAddress("repo")),
        ("my project/src/", FolderAddress("my project/src")),
        ("gs://bucket/x.tar.gz", ArchiveAddress("gs://bucket/x.tar.gz")),
        ("gs://bucket/a/x.zip#subdirectory=sub/dir", ArchiveAddress("gs://bucket/a/x.zip", "sub/dir")),
        (REPO, GitAddress(REPO)),
        (f"{REPO}.git", GitAddress(f"{REPO}.git")),
        (f"{REPO}/", GitAddress(REPO)),
        ("HTTPS://GitHub.com/Org/repo", GitAddress("https://github.com/Org/repo")),
        (f"{REPO}@v1.2", GitAddress(REPO, "v1.2")),
        (f"git+{REPO}.git@feature/x#subdirectory=a/b", GitAddress(f"{REPO}.git", "feature/x", "a/b")),
        (f"{REPO}@{COMMIT.upper()}", GitAddress(REPO, COMMIT)),
        ("https://gitlab.example.org:8443/a/b/c", GitAddress("https://gitlab.example.org:8443/a/b/c")),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    """Folder, archive and repository; what is read is written so that it is read the same way again."""
    assert source_address(text) == address
    assert source_address(str(address)) == address


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("git@github.com:org/repo.git", f"{REPO}.git"),
        ("ssh://git@github.com/org/repo", REPO),
        ("github.com/org/repo", REPO),
        (f"{REPO}/tree/main", f"{REPO}@main"),
        (f"{REPO}/tree/v1/sub/dir", f"{REPO}@v1#subdirectory=sub/dir"),
        (f"{REPO}/archive/refs/tags/v1.2.tar.gz", f"{REPO}@v1.2"),
        (f"{REPO}#main:sub", f"{REPO}@main#subdirectory=sub"),
        ("gs://bucket/folder", None),
        ("s3://bucket/x.zip", None),
        ("../up", None),
        (f"{REPO}@--upload-pack=x", None),
        (f"{REPO}@a..b", None),
        (f"{REPO}?x=1", "https://github.com/org/repo@v1.2"),
        ("https://github.com/org/re po", None),
        ("https://", "https://github.com/org/repo@v1.2"),
        (f"{REPO}#subdirectory=../x", None),
    ],
)
def test_what_is_none_is_refused_with_what_was_meant(text: str, nearest: str | None) -> None:
    """A login over SSH, a page of the browser, a download: each has an address that works."""
    with pytest.raises(Invalid) as error:
        source_address(text)
    assert error.value.nearest == nearest


def test_a_login_in_the_address_is_not_shown() -> None:
    """It would be in the database of Airflow; the field for a connection is named."""
    with pytest.raises(Invalid, match="source_conn_id") as error:
        source_address("https://user:t0ken@github.com/org/repo")
    assert error.value.secret
