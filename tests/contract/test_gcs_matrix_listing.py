# SPDX-License-Identifier: Apache-2.0
"""Storage contract: names and listings. Runs against the local server or a real bucket."""

from __future__ import annotations

import pytest
from google.api_core.exceptions import BadRequest

from tests.contract.gcs_target import Target

pytest_plugins = ("tests.contract.gcs_fixtures",)

TREE = ["a", "b/1", "b/2", "b/c/3", "d.txt", "e/x.txt", "é", "한글"]


@pytest.fixture(scope="module")
def tree(target: Target) -> str:
    """A prefix with a small tree of objects below it."""
    prefix = target.name("")
    for name in TREE:
        target.bucket.blob(prefix + name).upload_from_string(b"x")
    return prefix


def test_listing_is_in_byte_order(target: Target, tree: str) -> None:
    """All names below a prefix come back once each, ordered by their UTF-8 bytes."""
    assert target.names(tree) == sorted(TREE, key=str.encode)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_pages_have_the_asked_size(target: Target, tree: str, size: int) -> None:
    """Pages are no larger than asked, and together complete and without repetition."""
    pages = target.bucket.client.list_blobs(target.bucket, prefix=tree, page_size=size).pages
    found = [[blob.name.removeprefix(tree) for blob in page] for page in pages]
    assert max(len(page) for page in found) == size
    assert [name for page in found for name in page] == sorted(TREE, key=str.encode)


def test_only_the_asked_fields_are_sent(target: Target, tree: str) -> None:
    """A long listing asks for names and generations alone, and gets nothing else."""
    url = f"{target.url}/storage/v1/b/{target.bucket.name}/o"
    wanted = {"prefix": f"{tree}b/", "maxResults": "2", "fields": "items(name,generation),nextPageToken"}
    page = target.http.get(url, params=wanted).json()
    assert page.keys() == {"items", "nextPageToken"}
    assert [item.keys() for item in page["items"]] == [{"name", "generation"}] * 2
    mixed = target.http.get(url, params={**wanted, "fields": "kind,items(name,etag)"}).json()
    assert (page["items"][0]["name"], mixed["kind"]) == (f"{tree}b/1", "storage#objects")
    assert mixed["items"][0].keys() == {"name", "etag"}


@pytest.mark.parametrize("size", [1, 2, 100])
def test_delimiter_folds_folders(target: Target, tree: str, size: int) -> None:
    """With a delimiter what lies deeper appears once as a prefix, whatever the size of a page."""
    listing = target.bucket.client.list_blobs(target.bucket, prefix=tree, delimiter="/", page_size=size)
    assert [blob.name.removeprefix(tree) for blob in listing] == ["a", "d.txt", "é", "한글"]
    assert {name.removeprefix(tree) for name in listing.prefixes} == {"b/", "e/"}


def test_folder_objects_are_listed_beside_their_prefix_when_asked(target: Target) -> None:
    """An object that ends with the delimiter is folded, or with includeTrailingDelimiter listed as well."""
    prefix = target.name("")
    target.bucket.blob(prefix + "dir/").upload_from_string(b"")
    assert target.names(prefix, delimiter="/") == []
    assert target.names(prefix, delimiter="/", include_trailing_delimiter=True) == ["dir/"]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("b/2", "e", ["b/2", "b/c/3", "d.txt"]),
        ("", "b/2", ["a", "b/1"]),
        ("é", "", ["é", "한글"]),
    ],
)
def test_offsets_bound_the_listing(target: Target, tree: str, start: str, end: str, expected: list[str]) -> None:
    """startOffset is included, endOffset is not."""
    assert target.names(tree, start_offset=tree + start, end_offset=tree + end if end else None) == expected


def test_long_folder_is_skipped(target: Target) -> None:
    """A folder of many objects is one prefix, and what follows it is still listed."""
    prefix = target.name("")
    for number in range(12):
        target.bucket.blob(f"{prefix}many/{number:02}").upload_from_string(b"")
    target.bucket.blob(prefix + "many0").upload_from_string(b"")
    listing = target.bucket.client.list_blobs(target.bucket, prefix=prefix, delimiter="/", page_size=2)
    assert [blob.name.removeprefix(prefix) for blob in listing] == ["many0"]
    assert listing.prefixes == {prefix + "many/"}


UNUSUAL = [
    "with space", "plus+plus", "tab\there", "ünïcode-한글-e\u0301", "double//slash", "trailing/", "#hash", "question?",
    "percent%2Fescaped", "%", "back\\slash", "[brackets]", "quote'\"", "semi;colon&amp", "./dot", "a/../b", "...",
    "-rf", "~", "nul\x01", "emoji-\U0001f600",
]  # fmt: skip


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_name_is_kept(target: Target, name: str) -> None:
    """An allowed name, however odd, can be written, read, listed and deleted under exactly that name."""
    blob = target.put(name.encode(), name)
    assert target.bucket.blob(blob.name).download_as_bytes() == name.encode()
    assert [found.name for found in target.bucket.client.list_blobs(target.bucket, prefix=blob.name)] == [blob.name]
    target.bucket.delete_blob(blob.name)
    assert not blob.exists()


@pytest.mark.parametrize("letter", ["x", "é"])
def test_longest_name_is_kept(target: Target, letter: str) -> None:
    """A name of 1,024 bytes is allowed."""
    name = target.name("")
    name += "-" * (len(name) % 2) + letter * ((1024 - len(name) - len(name) % 2) // len(letter.encode()))
    target.bucket.blob(name).upload_from_string(b"long")
    assert len(name.encode()) == 1024
    assert target.bucket.blob(name).download_as_bytes() == b"long"


@pytest.mark.parametrize(
    "name", [".", "..", "new\nline", "carriage\rreturn", "x" * 1025, ".well-known/acme-challenge/token"]
)
def test_forbidden_name_is_refused(target: Target, name: str) -> None:
    """A forbidden name is a 400 and nothing is stored."""
    with pytest.raises(BadRequest):
        target.bucket.blob(name).upload_from_string(b"x")


def test_object_beside_a_folder_of_its_name(target: Target) -> None:
    """``fd`` and ``fd/x`` are two unrelated objects."""
    prefix = target.name("")
    for name in ("fd", "fd/x"):
        target.bucket.blob(prefix + name).upload_from_string(name.encode())
    assert target.names(prefix) == ["fd", "fd/x"]
    target.bucket.delete_blob(prefix + "fd")
    assert target.names(prefix) == ["fd/x"]


def test_malformed_page_token_is_refused(target: Target) -> None:
    """A page token that the service never gave out is a 400."""
    with pytest.raises(BadRequest):
        list(target.bucket.client.list_blobs(target.bucket, page_token="never"))
