# SPDX-License-Identifier: Apache-2.0
"""Fetch the commit of a run: which one it is, is decided once; only its files are kept."""

from __future__ import annotations

import difflib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from airflow_tpu import settings
from airflow_tpu.clients.endpoints import is_near
from airflow_tpu.clients.repository.commit import CommitFiles, fetch, files_of, list_references
from airflow_tpu.clients.repository.git import Git, GitLogin
from airflow_tpu.core.source.pin import SourcePin
from airflow_tpu.core.source.refs import Resolved, parse_refs, resolve
from airflow_tpu.core.source.tree import Hostile, Member, Written, checked, write
from airflow_tpu.errors import ConfigError, Fault

if TYPE_CHECKING:
    import datetime as dt

    from airflow_tpu.core.request.references.source_address import GitAddress
    from airflow_tpu.core.tpu.labels import RunKey
    from airflow_tpu.stores.sources import SourceStore

_NAMED = 10  # names in a message


@dataclass(frozen=True)
class Repository:
    """A repository as a run sees it.

    :param address: with the reference that is wanted.
    :param login: of its server, None for nothing.
    """

    address: GitAddress
    login: GitLogin | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.address.url)
        if parts.scheme != "https" and not is_near(parts.hostname or "", settings.insecure_hosts()):
            problem = "is reached without TLS, so that its code could be changed on the way"
            safe = replace(self.address, url=f"https://{parts.netloc}{parts.path}")
            raise ConfigError([Fault("source", str(self.address), problem, (), str(safe))], "the source")

    def pin(self, sources: SourceStore, key: RunKey) -> SourcePin:
        """Return the commit that a run trains, which the first of its tasks looks up.

        :param sources: where it is kept.
        :param key: of the run.
        :raises SourceUnreachable: the server did not answer.
        :raises ConfigError: there is no such repository, branch, tag or commit.
        """
        return sources.pin(key, str(self.address), lambda: self._look(sources.clock.now()))

    def _look(self, now: dt.datetime) -> SourcePin:
        found: Resolved | Fault = Resolved(self.address.commit)
        if not self.address.commit:
            with tempfile.TemporaryDirectory(prefix="airflow-tpu-") as folder:
                listing = list_references(Git(Path(folder), self.address.url, self.login))
            found = resolve(self.address, parse_refs(listing))
        if isinstance(found, Fault):
            raise ConfigError([found], "the source")
        return SourcePin(str(self.address), found.commit, found.name, now)

    def write(self, pin: SourcePin, target: Path) -> tuple[Written, tuple[str, ...]]:
        """Fetch a commit and write the files of the project to a folder.

        :param target: an empty folder.
        :return: what was left out, and the submodules, which are not fetched.
        :raises SourceUnreachable: the server did not answer.
        :raises ConfigError: there is no such commit or folder, or a file of it is not written to a disk.
        """
        with tempfile.TemporaryDirectory(prefix="airflow-tpu-") as folder:
            git = Git(Path(folder), self.address.url, self.login)
            fetch(git, pin.commit, pin.name)
            with files_of(git, pin.commit) as listing:
                return self._write(listing, target), listing.submodules

    def _write(self, listing: CommitFiles, target: Path) -> Written:
        below = f"{self.address.folder}/" if self.address.folder else ""
        found = [member for member in listing.members if member.path.startswith(below)]
        if not found:
            raise ConfigError([_no_folder(self.address, listing.members)], "the source")
        try:
            return write([replace(one, path=one.path.removeprefix(below)) for one in checked(found)], target)
        except Hostile as error:
            raise ConfigError([Fault("source", str(self.address), str(error))], "the source") from error


def _no_folder(address: GitAddress, members: Sequence[Member]) -> Fault:
    folders = sorted({str(parent) for member in members for parent in Path(member.path).parents} - {"."})
    near = difflib.get_close_matches(address.folder, folders, n=5, cutoff=0.4)
    tops = [name for name in folders if "/" not in name]
    shown = tuple(near or tops[:_NAMED])
    return Fault("source", str(address), f"has no folder {address.folder!r}", shown, shown[0] if near else None)
