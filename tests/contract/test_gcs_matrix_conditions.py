# SPDX-License-Identifier: Apache-2.0
"""Storage contract: preconditions on every verb. Runs against the local server or a real bucket."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Any

import pytest
from google.api_core.exceptions import NotFound, PreconditionFailed
from google.cloud.storage import Blob

from tests.contract.gcs_target import Target

pytest_plugins = ("tests.contract.gcs_fixtures",)

STALE = 1  # no generation of any object is this old
Write = Callable[..., Any]


def simple(blob: Blob, **conditions: int) -> None:
    """Upload in one request."""
    blob.upload_from_string(b"new", **conditions)


def resumable(blob: Blob, **conditions: int) -> None:
    """Upload by a resumable session."""
    blob.upload_from_file(BytesIO(b"new"), **conditions)


def compose(blob: Blob, **conditions: int) -> None:
    """Compose from another object."""
    part = blob.bucket.blob(blob.name + ".part")
    part.upload_from_string(b"new")
    blob.compose([part], **conditions)


def rewrite(blob: Blob, **conditions: int) -> None:
    """Rewrite from another object."""
    part = blob.bucket.blob(blob.name + ".part")
    part.upload_from_string(b"new")
    blob.rewrite(part, **conditions)


def copy(blob: Blob, **conditions: int) -> None:
    """Copy from another object."""
    part = blob.bucket.blob(blob.name + ".part")
    part.upload_from_string(b"new")
    blob.bucket.copy_blob(part, blob.bucket, blob.name, **conditions)


WRITES = [simple, resumable, compose, rewrite, copy]


@pytest.mark.parametrize("write", WRITES)
def test_create_if_absent_spares_what_is_there(target: Target, write: Write) -> None:
    """Writing with generation 0 over an existing object is a 412 and leaves it as it was."""
    blob = target.put(b"old")
    with pytest.raises(PreconditionFailed):
        write(target.bucket.blob(blob.name), if_generation_match=0)
    assert target.bucket.blob(blob.name).download_as_bytes() == b"old"


@pytest.mark.parametrize("write", WRITES)
def test_create_if_absent_creates(target: Target, write: Write) -> None:
    """Writing with generation 0 where nothing is creates the object."""
    blob = target.blob()
    write(blob, if_generation_match=0)
    assert target.bucket.blob(blob.name).download_as_bytes() == b"new"


@pytest.mark.parametrize("write", WRITES)
def test_stale_generation_is_refused(target: Target, write: Write) -> None:
    """Writing over another generation than the expected one is a 412 and leaves it as it was."""
    blob = target.put(b"old")
    with pytest.raises(PreconditionFailed):
        write(target.bucket.blob(blob.name), if_generation_match=STALE)
    assert target.bucket.blob(blob.name).download_as_bytes() == b"old"


@pytest.mark.parametrize("write", WRITES)
def test_right_generation_is_accepted(target: Target, write: Write) -> None:
    """Writing over exactly the expected generation replaces it with a greater one."""
    blob = target.put(b"old")
    write(target.bucket.blob(blob.name), if_generation_match=blob.generation)
    seen = target.bucket.get_blob(blob.name)
    assert seen.download_as_bytes() == b"new"
    assert seen.generation > blob.generation


def delete(blob: Blob, **conditions: int) -> None:
    """Delete."""
    blob.delete(**conditions)


def reload(blob: Blob, **conditions: int) -> None:
    """Read the metadata."""
    blob.reload(**conditions)


def download(blob: Blob, **conditions: int) -> None:
    """Read the content."""
    blob.download_as_bytes(**conditions)


def patch(blob: Blob, **conditions: int) -> None:
    """Change the metadata."""
    blob.cache_control = "no-store"
    blob.patch(**conditions)


OTHERS = [delete, reload, download, patch]


@pytest.mark.parametrize("act", OTHERS)
@pytest.mark.parametrize("condition", ["if_generation_match", "if_metageneration_match"])
def test_wrong_version_is_refused(target: Target, act: Write, condition: str) -> None:
    """Reading, changing and deleting another version than the expected one is a 412 and changes nothing."""
    blob = target.put()
    with pytest.raises(PreconditionFailed):
        act(target.bucket.blob(blob.name), **{condition: 77})
    assert target.bucket.get_blob(blob.name).metageneration == 1


@pytest.mark.parametrize("act", OTHERS)
def test_right_version_is_accepted(target: Target, act: Write) -> None:
    """Reading, changing and deleting exactly the expected version works."""
    blob = target.put()
    act(target.bucket.blob(blob.name), if_generation_match=blob.generation, if_metageneration_match=1)
    assert target.bucket.blob(blob.name).exists() == (act is not delete)


@pytest.mark.parametrize("act", OTHERS)
def test_missing_object_is_not_found(target: Target, act: Write) -> None:
    """Reading, changing and deleting what is not there is a 404."""
    with pytest.raises(NotFound):
        act(target.blob())


@pytest.mark.parametrize(
    "join",
    [
        lambda blob, source: blob.compose([source], if_source_generation_match=[STALE]),
        lambda blob, source: blob.rewrite(source, if_source_generation_match=STALE),
    ],
    ids=["compose", "rewrite"],
)
def test_source_conditions_hold_too(target: Target, join: Callable[[Blob, Blob], Any]) -> None:
    """A condition on the source of a compose or rewrite is checked."""
    blob = target.blob()
    with pytest.raises(PreconditionFailed):
        join(blob, target.put())
    assert not blob.exists()


def test_condition_is_checked_again_when_a_resumable_upload_ends(target: Target) -> None:
    """An object that appears while a create-if-absent session is open wins; the session gets 412."""
    name = target.name()
    url = target.session(name, ifGenerationMatch=0)
    target.bucket.blob(name).upload_from_string(b"first")
    assert target.http.put(url, data=b"second").status_code == 412
    assert target.bucket.blob(name).download_as_bytes() == b"first"


def test_unchanged_object_is_not_sent_again(target: Target) -> None:
    """A read on condition that the version differs from the known one is a 304."""
    blob = target.put()
    url = f"{target.url}/storage/v1/b/{target.bucket.name}/o/{blob.name.replace('/', '%2F')}"
    reply = target.http.get(url, params={"ifGenerationNotMatch": blob.generation})
    assert (reply.status_code, reply.content) == (304, b"")


@pytest.mark.parametrize("write", [simple, resumable])
def test_of_fifty_racers_one_wins(target: Target, write: Write) -> None:
    """Of 50 concurrent create-if-absent uploads exactly one succeeds and its content is what remains."""
    name = target.name()

    def race(number: int) -> int | None:
        blob = target.bucket.blob(name)
        try:
            if write is simple:
                blob.upload_from_string(str(number), if_generation_match=0)
            else:
                blob.upload_from_file(BytesIO(str(number).encode()), if_generation_match=0)
        except PreconditionFailed:
            return None
        return number

    with ThreadPoolExecutor(16) as pool:
        winners = [number for number in pool.map(race, range(50)) if number is not None]
    assert len(winners) == 1
    assert target.bucket.blob(name).download_as_text() == str(winners[0])
