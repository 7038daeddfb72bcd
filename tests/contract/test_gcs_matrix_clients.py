# SPDX-License-Identifier: Apache-2.0
"""Storage contract: the other client libraries. Runs against the local server or a real bucket."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
from gcloud.aio.storage import Storage
from gcsfs.core import GCSFileSystem
from google.cloud.storage import transfer_manager

from tests.contract.gcs_target import REAL, Target

pytest_plugins = ("tests.contract.gcs_fixtures",)

BIG = os.urandom(6 * 1024 * 1024 + 5)


@pytest.fixture
def filesystem(target: Target) -> GCSFileSystem:
    """A gcsfs file system on the target: the plain one.

    The one that ``gcsfs`` exports first asks Google's control service, by gRPC and TLS, what kind of bucket this is,
    unless GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT was false at its import.
    """
    options = {} if REAL else {"endpoint_url": target.url, "token": "anon"}
    return GCSFileSystem(skip_instance_cache=True, use_listings_cache=False, **options)


@pytest.fixture
async def aio(target: Target) -> AsyncIterator[Storage]:
    """A gcloud-aio client on the target."""
    async with aiohttp.ClientSession() as session:
        yield Storage(session=cast(Any, session), api_root=None if REAL else target.url)


@pytest.mark.parametrize("data", [b"small\r", BIG], ids=["small", "big"])
def test_gcsfs_round_trip(target: Target, filesystem: GCSFileSystem, data: bytes) -> None:
    """gcsfs writes and reads back small files (whose upload ends its lines with LF alone) and large ones."""
    path = f"{target.bucket.name}/{target.name()}"
    filesystem.pipe(path, data)
    assert filesystem.cat(path) == data
    assert filesystem.info(path)["size"] == len(data)


def test_gcsfs_streams(target: Target, filesystem: GCSFileSystem) -> None:
    """A gcsfs file object uploads in chunks and reads slices."""
    path = f"{target.bucket.name}/{target.name()}"
    with filesystem.open(path, "wb", block_size=1024 * 1024) as file:
        for start in range(0, len(BIG), 700_001):
            file.write(BIG[start : start + 700_001])
    with filesystem.open(path, "rb") as file:
        file.seek(-7, 2)
        assert file.read() == BIG[-7:]
    assert filesystem.cat(path) == BIG


def test_gcsfs_tree(target: Target, filesystem: GCSFileSystem) -> None:
    """gcsfs lists, finds, copies, moves and removes."""
    root = f"{target.bucket.name}/{target.name('tree')}"
    filesystem.pipe({f"{root}/a": b"1", f"{root}/b/c": b"2"})
    filesystem.copy(f"{root}/a", f"{root}/copy")
    filesystem.mv(f"{root}/b/c", f"{root}/b/d")
    assert [path.removeprefix(root) for path in filesystem.find(root)] == ["/a", "/b/d", "/copy"]
    assert sorted(path.removeprefix(root) for path in filesystem.ls(root, detail=False)) == ["/a", "/b", "/copy"]
    filesystem.rm(root, recursive=True)
    assert not filesystem.exists(root)


def test_gcsfs_exclusive_create(target: Target, filesystem: GCSFileSystem) -> None:
    """gcsfs refuses to overwrite in create mode."""
    path = f"{target.bucket.name}/{target.name()}"
    filesystem.pipe_file(path, b"first", mode="create")
    with pytest.raises(FileExistsError):
        filesystem.pipe_file(path, b"second", mode="create")
    assert filesystem.cat(path) == b"first"


@pytest.mark.parametrize("resumable", [False, True], ids=["multipart", "resumable"])
async def test_gcloud_aio_round_trip(target: Target, aio: Storage, resumable: bool) -> None:
    """gcloud-aio-storage uploads, downloads, lists and deletes."""
    name = target.name()
    await aio.upload(target.bucket.name, name, BIG, force_resumable_upload=resumable)
    assert await aio.download(target.bucket.name, name) == BIG
    listed = await aio.list_objects(target.bucket.name, params={"prefix": name})
    assert [item["name"] for item in listed["items"]] == [name]
    await aio.delete(target.bucket.name, name)
    assert "items" not in await aio.list_objects(target.bucket.name, params={"prefix": name})


async def test_gcloud_aio_metadata(target: Target, aio: Storage) -> None:
    """gcloud-aio-storage patches and reads metadata, and copies."""
    name = target.put(b"x").name
    await aio.patch_metadata(target.bucket.name, name, {"metadata": {"run": "a"}})
    await aio.copy(target.bucket.name, name, target.bucket.name, new_name=name + ".copy")
    seen = await aio.download_metadata(target.bucket.name, name + ".copy")
    assert (seen["metadata"], seen["size"]) == ({"run": "a"}, "1")


def test_transfer_manager_moves_many(target: Target, tmp_path: Path) -> None:
    """Many files go up and come down in parallel, and existing ones are reported, not overwritten."""
    names = [f"{number}.bin" for number in range(20)]
    for name in names:
        (tmp_path / name).write_bytes(name.encode() * 100)
    options = {"blob_name_prefix": target.name(""), "worker_type": transfer_manager.THREAD, "max_workers": 4}
    upload = transfer_manager.upload_many_from_filenames
    assert upload(target.bucket, names, source_directory=str(tmp_path), **options) == [None] * 20
    again = upload(target.bucket, names, source_directory=str(tmp_path), skip_if_exists=True, **options)
    assert {type(result).__name__ for result in again} == {"PreconditionFailed"}
    (tmp_path / "down").mkdir()
    transfer_manager.download_many_to_path(
        target.bucket, names, destination_directory=str(tmp_path / "down"), **options
    )
    assert all((tmp_path / "down" / name).read_bytes() == name.encode() * 100 for name in names)


def test_transfer_manager_downloads_in_parts(target: Target, tmp_path: Path) -> None:
    """One object comes down in parallel slices and passes its checksum."""
    blob = target.put(BIG)
    path = tmp_path / "down"
    transfer_manager.download_chunks_concurrently(
        blob, str(path), chunk_size=1024 * 1024, worker_type=transfer_manager.THREAD
    )
    assert path.read_bytes() == BIG
