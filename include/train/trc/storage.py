# SPDX-License-Identifier: Apache-2.0
"""Fetch objects of Cloud Storage to the local disk, by Google's own client library.

``STORAGE_EMULATOR_HOST`` redirects it. Each download is checked against the checksum that the bucket holds.
"""

from __future__ import annotations

import importlib
from pathlib import Path, PurePosixPath
from typing import Any

from trc.contract import EXIT_BAD_CONFIG, EXIT_BAD_DATA, EXIT_STORAGE, ContractExit

_TIMEOUT = 60.0  # seconds of silence


def fetch(uri: str, directory: Path) -> list[Path]:
    """Download an object, or every object below a prefix, keeping the names below it.

    :param uri: ``gs://bucket/object`` or ``gs://bucket/prefix``.
    :param directory: where to; nothing is ever written outside it.
    :return: the files, sorted.
    :raises ContractExit: 64 without the library or a service account, 65 if there is nothing or it may not be read,
        74 if storage does not answer.
    """
    storage, exceptions = _module("google.cloud.storage"), _module("google.api_core.exceptions")
    auth = _module("google.auth.exceptions")
    bucket, _, name = uri.removeprefix("gs://").partition("/")
    name = name.rstrip("/")
    try:
        # Reading objects needs no project; without a name the client would look for one on the metadata server.
        found = storage.Client(project="none").list_blobs(bucket, prefix=name, timeout=_TIMEOUT)
        blobs = [blob for blob in found if blob.name == name or blob.name.startswith(f"{name}/")]
        files = [_download(blob, directory / _below(blob.name, name)) for blob in blobs if blob.name[-1] != "/"]
    except (exceptions.NotFound, exceptions.Forbidden) as error:
        raise ContractExit(EXIT_BAD_DATA, f"cannot read {uri}: {error}") from error
    except auth.DefaultCredentialsError as error:
        raise ContractExit(EXIT_BAD_CONFIG, f"cannot read {uri} without a service account: {error}") from error
    except (exceptions.GoogleAPICallError, exceptions.RetryError, auth.GoogleAuthError, OSError) as error:
        raise ContractExit(EXIT_STORAGE, f"cannot fetch {uri}: {error}") from error
    if not files:
        raise ContractExit(EXIT_BAD_DATA, f"{uri} names no object and no prefix that has any")
    return sorted(files)


def _below(name: str, prefix: str) -> str:
    """The path of an object below the prefix. A name is hostile: it may not lead out of the directory."""
    path = PurePosixPath(name[len(prefix) + 1 :] or PurePosixPath(name).name)
    if path.is_absolute() or ".." in path.parts:
        raise ContractExit(EXIT_BAD_DATA, f"the object {name!r} would be written outside its directory")
    return str(path)


def _download(blob: Any, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    blob.download_to_filename(str(path), timeout=_TIMEOUT)
    return path


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        problem = f"reading gs:// takes google-cloud-storage (requirements.txt beside this script): {error}"
        raise ContractExit(EXIT_BAD_CONFIG, problem) from error
