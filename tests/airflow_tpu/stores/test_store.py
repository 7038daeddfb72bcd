# SPDX-License-Identifier: Apache-2.0
"""The one compare-and-swap, against a real object store."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from airflow_tpu.clients.clock import Clock
from airflow_tpu.core.run.job import LastAttempt
from airflow_tpu.core.run.run_record import RUN_RECORD_FORM, RunRecord
from airflow_tpu.errors import LedgerError, TransientError
from airflow_tpu.hooks.artifacts import ArtifactsHook
from airflow_tpu.stores.runs import RunStore
from airflow_tpu.stores.store import LONGEST_PAUSE, Store
from tests.airflow_tpu.cloud_env import KEY, ROOT, CloudEnv

WRITERS = 8


class Overtaken(ArtifactsHook):
    """A process that is too late the first times: somebody else writes between its read and its write."""

    times = 0

    def read_json(self, uri: str) -> Any:
        """Read, and let another process write at once."""
        found = super().read_json(uri)
        if found is not None and self.times > 0:
            self.times -= 1
            ArtifactsHook().write_json(uri, found.data)
        return found


def test_no_change_is_lost_between_writers(env: CloudEnv) -> None:
    """Of eight processes that each note a fact, at the same moment, every fact is in the object."""
    env.lease()
    start = Barrier(WRITERS)

    def note(number: int) -> None:
        own = dataclasses.replace(env, storage=ArtifactsHook()).runs
        start.wait(30)
        own.amend(KEY, lambda record: record.with_life(f"n-{number}", stalls=number))

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(note, range(WRITERS)))
    noted = {node_id: life.stalls for node_id, life in env.runs.read(KEY).lives.items()}
    assert noted == {f"n-{number}": number for number in range(WRITERS)}


def overtaken(times: int) -> tuple[Store, list[float]]:
    """A store that loses so many races, and the pauses that it makes."""
    hook, pauses = Overtaken(), list[float]()
    hook.times = times
    return Store(hook, ROOT, clock=Clock(sleep=pauses.append)), pauses


def test_lost_race_is_decided_again_after_a_pause(env: CloudEnv) -> None:
    """Each decision is made from what the object is by then; the pauses are random and bounded."""
    env.lease()
    store, pauses = overtaken(4)  # each try reads, and after a refused write reads once more
    seen: list[RunRecord | None] = []

    def decide(current: RunRecord | None) -> RunRecord | None:
        seen.append(current)
        return current and current.next_incarnation()

    changed = store.change(env.runs.uri(KEY), RUN_RECORD_FORM, decide)
    assert changed == env.runs.read(KEY)
    assert (len(seen), len(pauses)) == (3, 2)
    assert all(0 <= pause <= LONGEST_PAUSE for pause in pauses)


class LostAnswer(ArtifactsHook):
    """A process whose first write arrives, whose answer does not, and which another writer follows at once."""

    lost = False

    def write_json(self, uri: str, data: Any, generation: int | None = None) -> int | None:
        """Write; the first time another process notes a fact before the repetition meets it."""
        written = super().write_json(uri, data, generation)
        if self.lost:
            return written
        self.lost = True
        RunStore(ArtifactsHook(), ROOT).amend(KEY, lambda record: record.with_life("n-9", stalls=1))
        return None


def test_change_whose_answer_was_lost_is_made_once(env: CloudEnv) -> None:
    """A write that arrived is not repeated, although others have changed the object before it was looked at again."""
    record = env.lease()
    store = RunStore(LostAnswer(), ROOT, clock=Clock(sleep=lambda _: None))
    changed = store.update(record, lambda now: now.next_attempt(LastAttempt(node_id="n-1")))
    assert changed.last_attempt().number == 1
    found = env.runs.read(KEY)
    assert (found.last_attempt().number, found.life("n-9").stalls) == (1, 1)


def test_two_that_make_the_same_change_do_not_both_go_on(env: CloudEnv) -> None:
    """Two processes that count up from the same object count two, although each would write the same."""
    record = env.lease()
    start = Barrier(WRITERS)

    def count(_: int) -> None:
        own = dataclasses.replace(env, storage=ArtifactsHook()).runs
        start.wait(30)
        own.update(record, lambda now: now.next_attempt(LastAttempt(node_id="n-1")))

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(count, range(WRITERS)))
    assert env.runs.read(KEY).last_attempt().number == WRITERS


def test_writer_who_loses_every_race_says_so(env: CloudEnv) -> None:
    """After as many tries as the store allows the error is one that a retry may cure; nothing was written."""
    before = env.lease()
    store, pauses = overtaken(1000)
    with pytest.raises(TransientError, match=f"written by others {store.tries} times in a row"):
        store.change(env.runs.uri(KEY), RUN_RECORD_FORM, lambda now: now and now.next_incarnation())
    assert len(pauses) == store.tries - 1
    assert env.runs.read(KEY) == before


@pytest.mark.parametrize("left", [lambda now: now, lambda now: None], ids=["equal", "none"])
def test_decision_to_leave_it_writes_nothing(env: CloudEnv, left: Any) -> None:
    """An equal object, or no decision, leaves the generation as it is."""
    env.lease()
    before = env.storage.listing(f"{ROOT}/leases/")
    env.runs.change(env.runs.uri(KEY), RUN_RECORD_FORM, left)
    assert env.storage.listing(f"{ROOT}/leases/") == before


def test_object_that_is_not_json_is_damaged(env: CloudEnv) -> None:
    """Text that is no JSON is an error with the object's name, and stays."""
    uri = env.runs.uri(KEY)
    bucket, name = uri.removeprefix("gs://").split("/", 1)
    env.storage.upload(bucket, name, data="no JSON")
    with pytest.raises(LedgerError, match="is not JSON"):
        env.runs.find(KEY)
    with pytest.raises(LedgerError, match="is not JSON"):
        env.lease()
