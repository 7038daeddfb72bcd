# SPDX-License-Identifier: Apache-2.0
"""Reading what the page shows: failures stay apart, the ledger is read once, no request waits."""

from __future__ import annotations

import datetime as dt
import json
import threading
from collections import Counter
from collections.abc import Callable

import pytest

from airflow_tpu.core.tpu.identity import Airflows
from airflow_tpu.errors import AccessDenied
from airflow_tpu.stores.airflows import AirflowStore
from airflow_tpu.stores.grants import load_grant, shared_root
from airflow_tpu.stores.ledger_reader import LedgerReader
from airflow_tpu.stores.parallel_reads import READERS
from airflow_tpu.ui.data import Loader, SnapshotCache
from airflow_tpu.ui.snapshot import Snapshot
from localcloud.testing import eventually
from tests.airflow_tpu.identities import AIRFLOW, OTHER_AIRFLOW
from tests.airflow_tpu.ui.invented import LIVING, ROOT, Project, history
from tests.airflow_tpu.ui.made import NOW, closed, opened, snapshot

REFUSED = {"project": "local-project", "is_anonymous": True, "tpu_api_endpoint": "tpu.googleapis.com:443"}


class Source:
    """A source that can be slow, and counts how often it is read."""

    def __init__(self) -> None:
        self.reads = 0
        self.open = threading.Event()
        self.open.set()

    def __call__(self) -> Snapshot:
        """Read, once somebody opens the source."""
        self.reads += 1
        assert self.open.wait(30)
        return Snapshot(NOW + self.reads * dt.timedelta(minutes=1))


class TriggerContext:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        """Seconds so far."""
        return self.seconds


@pytest.fixture
def source() -> Source:
    """An open source."""
    return Source()


@pytest.fixture
def watch() -> TriggerContext:
    """A stopped clock."""
    return TriggerContext()


def test_a_young_snapshot_is_given_again(source: Source, watch: TriggerContext) -> None:
    """Within its age a snapshot is read once for all readers, after it anew."""
    cache = SnapshotCache(source, watch, max_age=15)
    first = cache.get(30)
    watch.seconds = 14.9
    assert cache.get(30) is first
    watch.seconds = 15.0
    assert cache.get(30) is not first
    assert source.reads == 2


def test_a_slow_source_holds_nobody_up(source: Source, watch: TriggerContext) -> None:
    """While the first reading is under way there is nothing, later the old snapshot, and one reading at a time."""
    cache = SnapshotCache(source, watch, max_age=15)
    source.open.clear()
    assert [cache.get(0), cache.get(0)] == [None, None]
    source.open.set()
    first = eventually(lambda: cache.get(0), bool)
    source.open.clear()
    watch.seconds = 20.0
    assert [cache.get(0), cache.get(0)] == [first, first]
    assert source.reads == 2
    source.open.set()
    assert eventually(lambda: cache.get(0), lambda found: found is not first) is not None


def test_an_error_nobody_foresaw_is_not_swallowed() -> None:
    """A bug in the reading reaches the request that waits for it, and the next request tries again."""
    answers: list[Callable[[], Snapshot]] = [lambda: next(iter(())), lambda: snapshot()]
    cache = SnapshotCache(lambda: answers.pop(0)())
    with pytest.raises(StopIteration):
        cache.get(30)
    assert cache.get(30) is not None


def test_a_full_project_is_read_whole(fresh: Project) -> None:
    """Grant, live TPUs, leases and ledger come from where the product keeps them."""
    now = dt.datetime.now(dt.UTC)
    for event in history(now, 5):
        fresh.record(event)
    fresh.run(LIVING, now + dt.timedelta(hours=1))
    found = Loader()()
    assert found.problems == {}
    assert found.project is not None
    assert [node.node_id for node in found.project.nodes] == [LIVING.node_id(1)]
    assert found.records is not None
    assert [record.key for record in found.records] == [LIVING]
    assert found.usage is not None
    assert len(found.usage.rows) == 6


def test_a_source_that_fails_leaves_the_others(fresh: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a connection that does not reach the TPU API, the grant is still read, and the failure is shown."""
    monkeypatch.setenv("AIRFLOW_CONN_BROKEN", json.dumps({"conn_type": "google_cloud_platform", "extra": REFUSED}))
    found = Loader("broken")()
    assert (found.project, found.records, found.usage) == (None, None, None)
    assert found.grant == load_grant()
    assert "tpu_api_endpoint" in found.problems["live TPUs"]


def test_without_a_connection_everything_is_unknown_and_said(fresh: Project) -> None:
    """A connection that does not exist is a problem of each part, named, and no failure of the page."""
    found = Loader("no_such_connection")()
    assert set(found.problems) == {"live TPUs", "leases", "ledger", "names of other Airflows"}
    assert all("no_such_connection" in text for text in found.problems.values())


def test_without_a_grant_the_bucket_is_unknown(fresh: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A grant file that is not there leaves the live TPUs, and says why leases and ledger are missing."""
    monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__GRANT", "nowhere.yaml")
    found = Loader()()
    assert (found.grant, found.records, found.usage) == (None, None, None)
    assert found.project is not None
    assert "nowhere.yaml" in found.problems["grant"]


def test_identity_and_names_of_the_airflows_are_read(fresh: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page knows which TPUs are of this Airflow, and what the others are called; without an identity none is."""
    AirflowStore(fresh.storage, shared_root(load_grant())).introduce(OTHER_AIRFLOW, "prod", "")
    found = Loader()().airflows
    assert (found.own, found.named(OTHER_AIRFLOW)) == (AIRFLOW, f"Airflow 'prod' ({OTHER_AIRFLOW})")
    monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__GRANT", "nowhere.yaml")
    assert Loader()().airflows == Airflows(AIRFLOW)
    monkeypatch.setenv("AIRFLOW_VAR_AIRFLOW_TPU_IDENTITY", "prod")
    broken = Loader()()
    assert broken.airflows == Airflows(None)
    assert "is not an identity" in broken.problems["identity of this Airflow"]


def test_each_object_of_the_ledger_is_read_once(fresh: Project) -> None:
    """A second reading fetches only what is new."""
    reader = LedgerReader()
    for event in history(NOW, 2):
        fresh.record(event)
    assert len(reader.events(fresh.storage, ROOT)) == 4
    fresh.record(opened(LIVING))
    reads = gets(fresh)
    assert len(reader.events(fresh.storage, ROOT)) == 5
    assert gets(fresh) - reads == 1


def test_an_open_page_reads_beginnings_and_ends_by_their_names(fresh: Project) -> None:
    """A TPU that comes and goes is seen at once; while nothing happens, and for a stranger's TPU, nothing is asked."""
    reader = LedgerReader()
    for event in history(NOW, 2):
        fresh.record(event)
    assert len(reader.events(fresh.storage, ROOT)) == 4
    start = opened(LIVING)
    fresh.record(start)
    before = requests(fresh)
    living = {start.node_id, "a-colleagues"}
    assert len(reader.named(fresh.storage, ROOT, living)) == 5
    assert len(reader.named(fresh.storage, ROOT, living)) == 5
    assert requests(fresh) - before == {"objects.media": 2}
    fresh.record(closed(start))
    assert len(reader.named(fresh.storage, ROOT, {"a-colleagues"})) == 6
    assert requests(fresh) - before == {"objects.insert": 1, "objects.media": 3}
    assert sorted(map(str, reader.events(fresh.storage, ROOT))) == sorted(
        map(str, reader.named(fresh.storage, ROOT, []))
    )


def test_an_event_is_read_again_by_its_name_once_it_is_repaired(fresh: Project) -> None:
    """A damaged beginning is left out until a person has mended it, and counted at the look after that."""
    reader = LedgerReader()
    start = opened(LIVING)
    fresh.storage.write_json(f"{ROOT}/{start.path}", {"event": "opened", "version": 1})
    assert reader.events(fresh.storage, ROOT) == []
    assert reader.named(fresh.storage, ROOT, {start.node_id}) == []
    assert reader.unknown == {start.path}
    fresh.storage.remove(f"{ROOT}/{start.path}")
    fresh.record(start)
    assert reader.named(fresh.storage, ROOT, {start.node_id}) == [start]
    assert reader.unknown == set()


def test_a_page_that_is_open_for_an_hour_lists_little(fresh: Project, watch: TriggerContext) -> None:
    """The ledger is listed once an hour and the records of runs every two minutes, sooner when a TPU has come."""
    for event in history(dt.datetime.now(dt.UTC), 5):
        fresh.record(event)
    loader, before = Loader(clock=watch), requests(fresh)
    loader()
    assert requests(fresh)["objects.list"] - before["objects.list"] == 3
    for _ in range(25):
        watch.seconds += 140.0
        assert loader().problems == {}
    assert requests(fresh)["objects.list"] - before["objects.list"] == 3 + 25
    fresh.run(LIVING, dt.datetime.now(dt.UTC) + dt.timedelta(hours=1))
    found = loader()
    assert found.usage is not None
    assert (len(found.records or ()), len(found.usage.rows)) == (1, 6)
    assert requests(fresh)["objects.list"] - before["objects.list"] == 3 + 25 + 1


def test_a_failure_half_way_loses_nothing_that_was_read(fresh: Project) -> None:
    """After a refused object the next reading fetches only what the first one did not get to."""
    # The last request may be any of those that are on their way at once: more objects than that, and some are kept.
    reader, whole = LedgerReader(), 2 * (READERS + 1)
    for event in history(NOW, READERS + 1):
        fresh.record(event)
    spec = {"point": "gcs.request", "match": {"op": "objects.media"}, "after": whole - 1, "params": {"action": "403"}}
    fresh.cloud.cloud.faults.add({**spec, "times": 1})
    with pytest.raises(AccessDenied):
        reader.events(fresh.storage, ROOT)
    assert fresh.cloud.cloud.faults.unused() == []
    reads = gets(fresh)
    assert len(reader.events(fresh.storage, ROOT)) == whole
    assert gets(fresh) - reads < whole


def test_a_damaged_event_is_left_out_and_named(fresh: Project) -> None:
    """An object that is no event leaves the rest of the ledger as it is, and the page names it."""
    for event in history(NOW, 1):
        fresh.record(event)
    whole = LedgerReader().events(fresh.storage, ROOT)
    fresh.storage.write_json(f"{ROOT}/ledger/incarnations/broken/opened.json", {"event": "opened", "version": 1})
    assert LedgerReader().events(fresh.storage, ROOT) == whole
    found = Loader()()
    assert found.usage is not None
    assert "incarnations/broken/opened.json" in found.problems["ledger"]


def requests(project: Project) -> Counter[str]:
    """Requests of each kind that Cloud Storage has seen."""
    return Counter(project.cloud.call(project.cloud.cloud.storage.stats)["requests"])


def gets(project: Project) -> int:
    """Objects that have been read from the bucket so far."""
    stats = project.cloud.call(project.cloud.cloud.storage.stats)
    return int(stats["requests"]["objects.media"])
