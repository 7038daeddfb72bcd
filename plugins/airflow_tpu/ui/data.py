# SPDX-License-Identifier: Apache-2.0
"""Read the sources of the page in the background, at most once in :data:`MAX_AGE` seconds."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, TypeVar

from airflow_tpu.clients import airflow_state
from airflow_tpu.clients.endpoints import cloud_failures
from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.clients.tpu_retry import CallTiming
from airflow_tpu.core.ledger.usage import Usage, fold
from airflow_tpu.core.tpu.identity import VARIABLE, Airflows, KnownAirflow, checked
from airflow_tpu.lifecycle.project_snapshot import ProjectSnapshot, take_snapshot
from airflow_tpu.stores.airflows import AirflowStore
from airflow_tpu.stores.grants import load_catalogue, load_grant, shared_root, store_root
from airflow_tpu.stores.ledger_reader import LedgerReader
from airflow_tpu.stores.runs import RunStore, left_alone
from airflow_tpu.ui.kept import Kept
from airflow_tpu.ui.snapshot import GRANT, IDENTITY, LEDGER, LIVE_TPUS, NAMES, RECORDS, Snapshot

if TYPE_CHECKING:
    from airflow_tpu.core.grant.grant import Grant
    from airflow_tpu.core.ledger.events import Closed, Opened
    from airflow_tpu.core.run.run_record import RunRecord
    from airflow_tpu.hooks.artifacts import ArtifactsHook
    from airflow_tpu.stores.store import Contents

T = TypeVar("T")
log = logging.getLogger(__name__)

GCP_CONN_ID = "google_cloud_default"
MAX_AGE = 15.0
"""Seconds for which an answer is given again without looking."""
RECORDS_AGE = 120.0
"""Seconds until the records of runs are listed again, sooner where a TPU has come or gone."""
LEDGER_AGE = 3600.0
"""Seconds until the whole ledger is listed again, twenty pages for ten thousand TPUs; until then beginnings and ends
are read by their names."""
NAMES_AGE = 3600.0
"""Seconds until the names of other Airflows are read again."""
# A page waits for no zone longer than this: a slower one shows as unknown, and the next look tries again.
_TIMING = CallTiming(answer=8.0, retry=12.0)


class Loader:
    """Reads the sources, each on its own: one that fails leaves the others standing.

    :param gcp_conn_id: connection to the Cloud TPU API and Cloud Storage.
    :param clock: seconds, monotonic.
    """

    def __init__(self, gcp_conn_id: str = GCP_CONN_ID, clock: Callable[[], float] = time.monotonic) -> None:
        self.gcp_conn_id = gcp_conn_id
        self._ledger = LedgerReader()
        self._living: frozenset[str] = frozenset()
        self._kept_records: Kept[Contents[RunRecord]] = Kept(RECORDS_AGE, clock)
        self._kept_names: Kept[dict[str, KnownAirflow]] = Kept(NAMES_AGE, clock)
        self._listed: Kept[list[Opened | Closed]] = Kept(LEDGER_AGE, clock)

    def __call__(self) -> Snapshot:
        """Look once. The order matters: a TPU's lease and *opened* are written before the TPU exists."""
        now = dt.datetime.now(dt.UTC)
        problems: dict[str, str] = {}
        grant = _attempt(GRANT, load_grant, problems)
        project = _attempt(LIVE_TPUS, self._project, problems)
        if project is not None:
            self._living = frozenset(name.id for name in project.names)
        own = _attempt(IDENTITY, _own_identity, problems)
        if grant is None:
            missing = "the grant names the bucket, and it could not be read"
            problems |= {RECORDS: missing, LEDGER: missing}
            return Snapshot(now, None, project, problems=problems, airflows=Airflows(own))
        records = _attempt(RECORDS, lambda: self._records(grant), problems)
        usage = _attempt(LEDGER, lambda: self._usage(grant, now), problems)
        unknown = records.unknown if records else ()
        _say_unknown(RECORDS, unknown, problems)
        _say_unknown(LEDGER, self._ledger.unknown, problems)
        known = tuple(records.values) if records else None
        names = _attempt(NAMES, lambda: self._names(grant), problems) or {}
        return Snapshot(
            now, grant, project, known, usage, problems, left_alone(unknown), Airflows(own, names, store_root(grant))
        )

    def _project(self) -> ProjectSnapshot:
        from airflow_tpu.hooks.tpu import CloudTPUHook

        endpoint = CloudTPUHook(self.gcp_conn_id).endpoint

        async def look() -> ProjectSnapshot:
            async with TPUClient(endpoint, _TIMING) as client:
                return await take_snapshot(client)

        return asyncio.run(look())

    def _records(self, grant: Grant) -> Contents[RunRecord]:
        store = RunStore(self._storage(), store_root(grant))
        return self._kept_records.get(store.listed, (store.root, self._living))

    def _names(self, grant: Grant) -> dict[str, KnownAirflow]:
        store = AirflowStore(self._storage(), shared_root(grant))
        return self._kept_names.get(store.known, store.root)

    def _usage(self, grant: Grant, now: dt.datetime) -> Usage:
        return fold(self._events(self._storage(), store_root(grant)), load_catalogue(), now)

    def _events(self, storage: ArtifactsHook, root: str) -> list[Opened | Closed]:
        if self._listed.is_old(root):
            return self._listed.get(lambda: self._ledger.events(storage, root), root)
        return self._ledger.named(storage, root, self._living)

    def _storage(self) -> ArtifactsHook:
        from airflow_tpu.hooks.artifacts import ArtifactsHook

        return ArtifactsHook(self.gcp_conn_id)


class SnapshotCache:
    """The last snapshot, renewed in the background by one thread at a time, however many people look.

    :param load: reads the sources.
    :param clock: seconds, monotonic.
    :param max_age: seconds after which a snapshot is renewed.
    """

    def __init__(
        self, load: Callable[[], Snapshot], clock: Callable[[], float] = time.monotonic, max_age: float = MAX_AGE
    ) -> None:
        self._load, self._clock, self._max_age = load, clock, max_age
        self._lock = threading.Lock()
        self._last: tuple[float, Snapshot] | None = None
        self._running: Future[Snapshot] | None = None

    def get(self, wait_seconds: float) -> Snapshot | None:
        """The snapshot; an old one if a new one takes longer than we wait, None if there is none yet.

        :param wait_seconds: seconds to wait for a new one.
        """
        found = self._fresh()
        if isinstance(found, Snapshot):
            return found
        if wait([found], wait_seconds).done:
            return found.result()
        return self._last[1] if self._last else None

    async def arrived(self, wait_seconds: float) -> Snapshot | None:
        """As :meth:`get`, without holding a thread: a web server answers all its requests with a few dozen.

        :param wait_seconds: seconds to wait for a new one.
        """
        found = self._fresh()
        if isinstance(found, Snapshot):
            return found
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def tell(_: Future[Snapshot]) -> None:
            with contextlib.suppress(RuntimeError):  # the server has stopped meanwhile
                loop.call_soon_threadsafe(done.set)

        found.add_done_callback(tell)
        try:
            await asyncio.wait_for(done.wait(), wait_seconds)
        except TimeoutError:
            return self._last[1] if self._last else None
        return found.result()

    def _fresh(self) -> Snapshot | Future[Snapshot]:
        """The snapshot if it is young enough, else the reading that is under way."""
        with self._lock:
            if self._last is not None and self._clock() - self._last[0] < self._max_age:
                return self._last[1]
            self._running = self._running or self._start()
            return self._running

    def _start(self) -> Future[Snapshot]:
        future: Future[Snapshot] = Future()
        # A daemon: an API server that stops does not wait for a slow cloud.
        threading.Thread(target=self._renew, args=(future,), name="tpu-usage", daemon=True).start()
        return future

    def _renew(self, future: Future[Snapshot]) -> None:
        try:
            snapshot = self._load()
        except BaseException as error:  # noqa: BLE001 - the request that waits for it raises it
            with self._lock:
                self._running = None
            future.set_exception(error)
            return
        with self._lock:
            self._last, self._running = (self._clock(), snapshot), None
        future.set_result(snapshot)


def _own_identity() -> str | None:
    """Identity of this Airflow, None as long as no task of it has run."""
    found = airflow_state.variable(VARIABLE)
    return None if found is None else checked(found)


def _say_unknown(source: str, names: Collection[str], problems: dict[str, str]) -> None:
    """What cannot be read is left out of the page, and the page says so."""
    if names:
        problems[source] = (
            f"{len(names)} object(s), damaged or of another release, are left out: {', '.join(sorted(names)[:3])}"
        )


def _attempt(source: str, read: Callable[[], T], problems: dict[str, str]) -> T | None:
    """What a source gives, or None with the reason noted: the page then says *unknown*, and why."""
    try:
        return read()
    except cloud_failures() as error:
        log.warning(
            "usage page: the %s cannot be read and shows as unknown; the next look tries again: %s", source, error
        )
        problems[source] = str(error) or type(error).__name__
        return None
