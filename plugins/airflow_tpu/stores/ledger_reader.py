# SPDX-License-Identifier: Apache-2.0
"""Read the whole ledger: what has ended from one object a month, only the rest one by one."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from airflow_tpu.clients.endpoints import cloud_failures
from airflow_tpu.core.ledger.events import (
    ROOT,
    Closed,
    Opened,
    closed_path,
    event_at,
    is_event,
    node_id_of,
    opened_path,
)
from airflow_tpu.core.ledger.month_archive import ARCHIVE_FORM, Known, MonthArchive, archive_path, by_month
from airflow_tpu.errors import UnreadableObject
from airflow_tpu.stores.documents import Document, NotJSON, content_of, reader
from airflow_tpu.stores.parallel_reads import read_many

if TYPE_CHECKING:
    from airflow_tpu.hooks.artifacts import ArtifactsHook, ObjectInfo

log = logging.getLogger(__name__)

LEDGER = "ledger/"
"""Below this are the events and the months: one listing tells whether anything is new."""


class LedgerReader:
    """The events of a ledger, each object read once.

    What this process has to read by itself it adds to the object of its month, so that the next process need not.

    :param trusts_months: read and write these; without, every event is read from its own object.
    """

    def __init__(self, trusts_months: bool = True) -> None:
        self._trusts_months = trusts_months
        self._known: dict[str, tuple[int, Opened | Closed]] = {}
        self._unreadable: dict[str, int] = {}
        self._headless: set[str] = set()
        self._months: dict[str, tuple[int, MonthArchive | None]] = {}
        self._strange: set[str] = set()

    @property
    def unknown(self) -> set[str]:
        """Paths, below the grant's prefix, of events that cannot be used: their incarnations are left out."""
        return set(self._unreadable) | self._headless

    def events(self, hook: ArtifactsHook, root: str) -> list[Opened | Closed]:
        """Every event below ``gs://bucket/prefix`` that can be read."""
        return self.listed(hook, root, hook.listing(f"{root}/{LEDGER}"))

    def listed(self, hook: ArtifactsHook, root: str, infos: Iterable[ObjectInfo]) -> list[Opened | Closed]:
        """Every event that can be read, by a listing that was made just now.

        :param infos: the objects below ``root/ledger/``; others among them do not matter.
        """
        prefix = root.removeprefix("gs://").partition("/")[2]
        below = len(prefix) + 1 if prefix else 0
        present = {info.name[below:]: info.generation for info in infos}
        paths = {
            path: generation for path, generation in present.items() if path.startswith(f"{ROOT}/") and is_event(path)
        }
        self._forget(paths)
        if self._trusts_months and not paths.keys() <= self._known.keys():
            self._read_months(hook, root, present)
            self._forget(paths)
        self._read(hook, root, paths)
        self._strange.clear()
        found = self._usable(paths)
        if self._trusts_months:
            self._write_months(hook, root, found, present)
        return [found[path][1] for path in paths if path in found]

    def named(self, hook: ArtifactsHook, root: str, living: Collection[str]) -> list[Opened | Closed]:
        """The events as they were listed last, with the beginnings and ends since then, read by their names.

        That takes no listing, and no request while nothing begins or ends. The next listing shows what both began and
        ended between two looks.

        :param living: ids of the TPUs that are there now.
        """
        begun = {opened_path(node_id) for node_id in living}
        ends = {closed_path(event.node_id) for _, event in self._known.values() if event.node_id not in living}
        mended = set(self._unreadable) | {opened_path(node_id_of(path)) for path in self._headless}
        paths = sorted((begun | ends) - self._known.keys() - self._strange | mended)
        for path, found in zip(paths, read_many(reader(hook), [f"{root}/{path}" for path in paths]), strict=True):
            if found is None:
                self._unreadable.pop(path, None)
                # A beginning is written before its TPU is there: this one's is in another ledger.
                self._strange |= {path} & begun
            elif not isinstance(found, NotJSON) and self._unreadable.get(path) != found.generation:
                self._unreadable.pop(path, None)
                self._take(path, found.generation, found)
        return [event for _, (_, event) in sorted(self._usable(self._known).items())]

    def _usable(self, paths: Collection[str]) -> dict[str, tuple[int, Opened | Closed]]:
        """Return the events of every incarnation that has its beginning, and none that cannot be read."""
        self._find_headless(paths)
        left_out = {node_id_of(path) for path in self.unknown}
        return {path: event for path, event in self._known.items() if event[1].node_id not in left_out}

    def _forget(self, paths: Mapping[str, int]) -> None:
        """Forget what was replaced or removed since it was read."""
        self._known = {path: found for path, found in self._known.items() if paths.get(path) == found[0]}
        self._unreadable = {path: at for path, at in self._unreadable.items() if paths.get(path) == at}

    def _read_months(self, hook: ArtifactsHook, root: str, present: Mapping[str, int]) -> None:
        months = {path: at for path, at in present.items() if path == archive_path(_month_of(path))}
        fresh = [path for path, at in months.items() if self._months.get(path, (0, None))[0] != at]
        archives = read_many(lambda path: _archive(hook, f"{root}/{path}"), fresh)
        for path, archive in zip(fresh, archives, strict=True):
            self._months[path] = (months[path], archive)
            self._known = {**(archive.events() if archive is not None else {}), **self._known}

    def _read(self, hook: ArtifactsHook, root: str, present: Mapping[str, int]) -> None:
        paths = [path for path in present if path not in self._known and path not in self._unreadable]
        # One by one, so that what was read before a failure need not be read again after it.
        stored = read_many(reader(hook), [f"{root}/{path}" for path in paths])
        for path, found in zip(paths, stored, strict=True):
            if found is not None:
                self._take(path, present[path], found)

    def _take(self, path: str, generation: int, found: Document) -> None:
        try:
            self._known[path] = (generation, event_at(content_of(found, path), path))
        except UnreadableObject as error:
            log.error("%s. It is left out of the ledger; repair the object, or remove it", error)
            self._unreadable[path] = generation

    def _find_headless(self, present: Collection[str]) -> None:
        """Find the ends whose beginning is gone: a lost object makes one TPU unknown, not the whole ledger."""
        ends = [event for _, event in self._known.values() if isinstance(event, Closed)]
        found = {event.path for event in ends if opened_path(event.node_id) not in present}
        for path in sorted(found - self._headless):
            log.error(
                "the ledger event %s is an end without a beginning: what it used is unknown and left out. Restore its "
                "opened.json, or remove it",
                path,
            )
        self._headless = found

    def _write_months(self, hook: ArtifactsHook, root: str, found: Known, present: Mapping[str, int]) -> None:
        for path, archive in by_month(found).items():
            if self._months.get(path, (0, None))[1] == archive:
                continue
            if written := _write(hook, f"{root}/{path}", archive, present.get(path, 0)):
                self._months[path] = (written, archive)


def _month_of(path: str) -> str:
    return path.rpartition("/")[2].partition(".")[0]


def _archive(hook: ArtifactsHook, uri: str) -> MonthArchive | None:
    """The copy of a month; None for one that cannot be used, which costs time and nothing else."""
    try:
        stored = hook.read_gzip(uri)
        return None if stored is None else ARCHIVE_FORM.from_json(stored.data, uri)
    except (UnreadableObject, ValueError) as error:
        log.warning("reading each event of the month from its own object: %s", error)
        return None


def _write(hook: ArtifactsHook, uri: str, archive: MonthArchive, generation: int) -> int | None:
    """Write the copy of a month; who may not write, or is overtaken, leaves it to the next reader."""
    try:
        return hook.write_gzip(uri, ARCHIVE_FORM.to_json(archive), generation)
    except cloud_failures() as error:
        log.info("%s is not written, so the next reader reads its events from their own objects: %s", uri, error)
        return None
