# SPDX-License-Identifier: Apache-2.0
"""Fetch an archive from a bucket and unpack it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_tpu.core.source.archive import NotAnArchive, unpack
from airflow_tpu.core.source.tree import LIMIT, Hostile
from airflow_tpu.errors import AccessDenied, ConfigError, Fault
from airflow_tpu.hooks.bucket_facts import split_uri

if TYPE_CHECKING:
    from airflow_tpu.core.request.references.source_address import ArchiveAddress
    from airflow_tpu.core.source.tree import Written
    from airflow_tpu.hooks.artifacts import ArtifactsHook


def write_archive(address: ArchiveAddress, storage: ArtifactsHook, target: Path) -> Written:
    """Write the files of an archive to a folder.

    :param address: where it is.
    :param storage: Cloud Storage.
    :param target: an empty folder.
    :raises ConfigError: there is no such object, it may not be read, or a member of it is not written to a disk.
    """
    with tempfile.TemporaryDirectory(prefix="airflow-tpu-") as folder:
        # By a name of ours: the object's own may hold anything.
        archive = Path(folder, f"archive{'.zip' if address.uri.lower().endswith('.zip') else '.tar'}")
        _download(address, storage, archive)
        try:
            return unpack(archive, target)
        except (Hostile, NotAnArchive) as error:
            problem = str(error) if isinstance(error, Hostile) else f"cannot be unpacked: {error}"
            raise ConfigError([Fault("source", address.uri, problem)], "the source") from error


def _download(address: ArchiveAddress, storage: ArtifactsHook, target: Path) -> None:
    from google.api_core.exceptions import Forbidden, NotFound

    bucket, name = split_uri(address.uri)
    try:
        size = next((info.size for info in storage.listing(address.uri) if info.name == name), 0)
        if size > LIMIT:
            problem = f"has {size:,} bytes; a project of more than {LIMIT:,} is not fetched"
            raise ConfigError([Fault("source", address.uri, problem)], "the source")
        storage.download(bucket_name=bucket, object_name=name, filename=str(target))
    except (AccessDenied, Forbidden, NotFound) as error:
        problem = "there is no such object" if isinstance(error, NotFound) else "may not be read"
        raise ConfigError([Fault("source", address.uri, problem)], "the source") from error
