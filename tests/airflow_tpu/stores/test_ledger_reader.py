# SPDX-License-Identifier: Apache-2.0
"""Reading a large ledger: what has ended comes from its month, whatever is new from its own object."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_tpu.core.ledger.events import Closed, EndReason, Opened, closed_path, event_to_json
from airflow_tpu.core.ledger.month_archive import ARCHIVE_FORM, archive_path
from airflow_tpu.stores.ledger import LedgerStore
from airflow_tpu.stores.ledger_reader import LedgerReader
from tests.airflow_tpu.cloud_env import BUCKET, ROOT, CloudEnv
from tests.airflow_tpu.core.made_ledger import closed, opened

SEPTEMBER, OCTOBER = datetime(2026, 9, 30, 12, tzinfo=UTC), datetime(2026, 10, 1, 12, tzinfo=UTC)
RUNNING = opened("node-9", requested_at=SEPTEMBER)
MONTH = f"{ROOT}/{archive_path('2026-09')}"


def lives() -> Iterator[Opened | Closed]:
    """Four TPUs that have ended, two in each of two months, and one of the first month that has not."""
    for number, at in enumerate((SEPTEMBER, SEPTEMBER, OCTOBER, OCTOBER)):
        yield opened(f"node-{number}", requested_at=at)
        yield closed(f"node-{number}", ready_at=at + timedelta(minutes=5))
    yield RUNNING


@pytest.fixture
def ledger(env: CloudEnv) -> LedgerStore:
    """Their records, written and read once."""
    for event in lives():
        write(env, event)
    assert read(env) == set(lives())
    return env.ledger


def write(env: CloudEnv, event: Opened | Closed) -> None:
    """Put an event where it belongs, over whatever is there."""
    env.storage.write_json(f"{ROOT}/{event.path}", event_to_json(event))


def read(env: CloudEnv) -> set[Opened | Closed]:
    """Read the ledger as a process does that has just started."""
    return set(LedgerReader().events(env.storage, ROOT))


def requests(env: CloudEnv) -> dict[str, int]:
    """Requests to Cloud Storage so far, by their operation."""
    return dict(env.cloud.call(env.cloud.cloud.storage.stats)["requests"])


def cost(env: CloudEnv, expected: set[Opened | Closed]) -> dict[str, int]:
    """Requests of one reading, which finds these events."""
    before = requests(env)
    assert read(env) == expected
    return {name: more for name, number in requests(env).items() if (more := number - before.get(name, 0))}


def test_nothing_new_costs_a_listing_and_a_read_for_each_month(env: CloudEnv, ledger: LedgerStore) -> None:
    """What has ended is not read again; what has not is, since its own object is all there is of it."""
    assert cost(env, set(lives())) == {"objects.list": 1, "objects.media": 3}


def test_a_process_that_stays_reads_nothing_again(env: CloudEnv, ledger: LedgerStore) -> None:
    """The usage page asks for one listing as long as nothing is new."""
    reader = LedgerReader()
    first, before = reader.events(env.storage, ROOT), requests(env)
    assert reader.events(env.storage, ROOT) == first
    assert requests(env) == {**before, "objects.list": before["objects.list"] + 1}


def test_an_end_that_comes_late_is_seen(env: CloudEnv, ledger: LedgerStore) -> None:
    """The end of a TPU of a month that is long over is read, and belongs to the month from then on."""
    end = closed(RUNNING.node_id, minutes=60 * 24 * 40, ready_at=SEPTEMBER)
    write(env, end)
    assert cost(env, {*lives(), end}) == {"objects.list": 1, "objects.media": 4, "objects.insert": 1}
    assert cost(env, {*lives(), end}) == {"objects.list": 1, "objects.media": 2}


def test_an_amended_event_is_seen(env: CloudEnv, ledger: LedgerStore) -> None:
    """A person who replaces an object of a month that is over changes the sums of the next reader."""
    found = {event.path: event for event in lives()}
    amended = replace(next(event for event in lives() if isinstance(event, Closed)), training_seconds=1.0)
    write(env, amended)
    expected = set({**found, amended.path: amended}.values())
    assert cost(env, expected)["objects.media"] == 4
    assert cost(env, expected)["objects.media"] == 3


def test_a_removed_event_is_gone(env: CloudEnv, ledger: LedgerStore) -> None:
    """An end that a person removes leaves its TPU without one, although the month has it."""
    end = next(event for event in lives() if isinstance(event, Closed))
    env.storage.remove(f"{ROOT}/{end.path}")
    assert read(env) == set(lives()) - {end}
    assert cost(env, set(lives()) - {end}) == {"objects.list": 1, "objects.media": 4}


@pytest.mark.parametrize(
    "content",
    [b"\0", b"no gzip", gzip.compress(b"no json"), gzip.compress(b'{"version": 1}')],
    ids=["nothing", "no gzip", "no JSON", "half"],
)
def test_a_damaged_month_costs_time_only(env: CloudEnv, ledger: LedgerStore, content: bytes) -> None:
    """Its events are read from their own objects, and it is written anew."""
    env.storage.upload(bucket_name=BUCKET, object_name=MONTH.removeprefix(f"gs://{BUCKET}/"), data=content)
    assert cost(env, set(lives()))["objects.media"] == 3 + 4
    assert cost(env, set(lives()))["objects.media"] == 3


def test_who_may_not_write_reads_all_the_same(env: CloudEnv) -> None:
    """An account with read access gets every event; it only has to read them all each time."""
    for event in lives():
        write(env, event)
    env.cloud.add_fault("gcs.request", {"op": "objects.insert"}, times=9, action="403")
    for _ in range(2):
        assert cost(env, set(lives()))["objects.media"] == 9


def test_of_two_readers_one_writes(env: CloudEnv, ledger: LedgerStore) -> None:
    """A reader whose listing is older than the month leaves it as the faster one has written it."""
    slow = env.storage.listing(f"{ROOT}/ledger/")
    write(env, closed(RUNNING.node_id, ready_at=SEPTEMBER))
    read(env)
    written = env.storage.listing(MONTH)
    assert set(LedgerReader().listed(env.storage, ROOT, slow)) == set(lives())
    assert env.storage.listing(MONTH) == written


def test_an_event_of_another_release_stays_out(env: CloudEnv, ledger: LedgerStore) -> None:
    """Its incarnation is left out, is in no month, and everything else is read as ever."""
    first = next(lives())
    env.storage.write_json(f"{ROOT}/{first.path}", {**event_to_json(first), "version": 99})
    rest = {event for event in lives() if event.node_id != first.node_id}
    for _ in range(2):
        assert read(env) == rest
    reader = LedgerReader()
    reader.events(env.storage, ROOT)
    assert reader.unknown == {first.path}


def test_an_end_without_a_beginning_is_one_unknown_tpu(env: CloudEnv, ledger: LedgerStore) -> None:
    """Its end is left out and named, whether its month was read or not; everything else is read as ever."""
    first = next(lives())
    env.storage.remove(f"{ROOT}/{first.path}")
    rest = {event for event in lives() if event.node_id != first.node_id}
    reader = LedgerReader()
    for _ in range(2):
        assert set(reader.events(env.storage, ROOT)) == read(env) == rest
        assert reader.unknown == {closed_path(first.node_id)}
    write(env, first)
    assert set(reader.events(env.storage, ROOT)) == set(lives())
    assert not reader.unknown


def test_a_full_fold_proves_the_months(env: CloudEnv, ledger: LedgerStore) -> None:
    """Every event in its month is what its own object says; a month that says something else is found, and removed."""
    assert ledger.verify() == []
    stored = env.storage.read_gzip(MONTH)
    assert stored is not None
    archive = ARCHIVE_FORM.from_json(stored.data)
    wrong = replace(archive.closed[1], end_reason=EndReason.PREEMPTED)
    data: dict[str, Any] = ARCHIVE_FORM.to_json(replace(archive, closed=(archive.closed[0], wrong)))
    assert env.storage.write_gzip(MONTH, data, stored.generation) is not None
    assert wrong in read(env)
    assert ledger.verify() == [wrong.node_id]
    assert read(env) == set(lives())
    assert ledger.verify() == []


def test_a_month_is_small(env: CloudEnv, ledger: LedgerStore) -> None:
    """It is compressed: the names of zones, DAGs and rows repeat."""
    (info,) = env.storage.listing(MONTH)
    assert info.size < len(json.dumps([event_to_json(event) for event in lives()])) / 2
