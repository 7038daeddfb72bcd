# SPDX-License-Identifier: Apache-2.0
"""The files of a run's project on this worker: its folder, or what its archive or repository holds."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_tpu.core.request.references.source_address import ArchiveAddress, FolderAddress, GitAddress
from airflow_tpu.errors import ConfigError, Fault
from airflow_tpu.lifecycle.source.archived import write_archive

if TYPE_CHECKING:
    from airflow_tpu.core.source.tree import Written
    from airflow_tpu.lifecycle.run_context import RunContext

log = logging.getLogger(__name__)

_NAMED = 10  # names in a line of the log


@contextmanager
def project_files(run: RunContext) -> Iterator[Path]:
    """Yield the folder that a run's files travel from; what was fetched is gone after the ``with`` block.

    :raises ConfigError: there is no such project.
    :raises SourceUnreachable: the server of its repository did not answer.
    """
    address = run.conf.address
    if address is None or isinstance(address, FolderAddress):
        yield _folder(run.home.train, address)
        return
    with tempfile.TemporaryDirectory(prefix="airflow-tpu-") as folder:
        target = Path(folder)
        if isinstance(address, GitAddress):
            _fetch(run, target)
        else:
            target = _unpack(run, address, target)
        yield target


def _folder(home: Path, address: FolderAddress | None) -> Path:
    top = home / address.path if address is not None else home
    if not top.is_dir():
        raise ConfigError([Fault("source", str(address), f"there is no such folder in {home}")], "the bundle")
    return top


def _fetch(run: RunContext, target: Path) -> None:
    repository, pin = run.repository, run.source_pin
    if repository is None or pin is None:
        raise RuntimeError("the project is no repository")
    log.info("the project is %s. Later commits need a run of their own", pin)
    written, submodules = repository.write(pin, target)
    _tell("submodules are not fetched, their folders are missing", submodules)
    _tell_written(written)


def _unpack(run: RunContext, address: ArchiveAddress, target: Path) -> Path:
    _tell_written(write_archive(address, run.clients.storage, target))
    top = target / address.folder
    if not top.is_dir():
        there = tuple(sorted(path.name for path in target.iterdir() if path.is_dir()))[:_NAMED]
        raise ConfigError([Fault("source", str(address), f"has no folder {address.folder!r}", there)], "the source")
    return top


def _tell_written(written: Written) -> None:
    _tell("links that lead to no file of the project are left out", written.links)
    _tell("files are pointers to content in Git LFS, which is not fetched; put data into a bucket", written.pointers)


def _tell(words: str, paths: Sequence[str]) -> None:
    if paths:
        more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
        log.warning("%s: %s%s", words, ", ".join(paths[:_NAMED]), more)
