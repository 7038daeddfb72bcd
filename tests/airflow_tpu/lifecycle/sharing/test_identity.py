# SPDX-License-Identifier: Apache-2.0
"""The identity is found where only this Airflow keeps things, or made there once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Barrier

import pytest

from airflow_tpu.core.tpu.identity import CANDIDATE, VARIABLE, checked
from airflow_tpu.errors import ConfigError, GrantUnknown, TransientError
from airflow_tpu.lifecycle.connections import Connections
from airflow_tpu.lifecycle.run_context import GrantContext
from airflow_tpu.lifecycle.sharing.identity import find_or_make, introduce
from airflow_tpu.stores.airflows import AirflowStore
from tests.airflow_tpu.cloud_env import CloudEnv
from tests.airflow_tpu.identities import AIRFLOW

AT_ONCE = 8
"""Tasks that start together in an Airflow that has no identity yet."""


@dataclass
class Registers:
    """Variables as Airflow keeps them: the last write counts, and a read that fails looks like a missing key.

    :param values: by key.
    :param unread: how many reads fail from now on.
    :param before_keys: what happens just before a listing.
    """

    values: dict[str, str] = field(default_factory=dict)
    unread: int = 0
    before_keys: Callable[[], object] = lambda: None

    def get(self, key: str) -> str | None:
        """Value of a key."""
        if self.unread:
            self.unread -= 1
            return None
        return self.values.get(key)

    def put(self, key: str, value: str, description: str) -> None:
        """Write a key."""
        self.values[key] = value

    def keys(self, prefix: str) -> list[str]:
        """Keys that begin so."""
        self.before_keys()
        return [key for key in list(self.values) if key.startswith(prefix)]

    def remove(self, key: str) -> None:
        """Remove a key."""
        self.values.pop(key, None)


def no_bucket() -> AirflowStore:
    """The bucket when the grant cannot be read."""
    raise GrantUnknown([])


def test_identity_that_is_there_needs_no_bucket() -> None:
    """A teardown in an Airflow whose grant is broken still knows whose TPU it deletes."""
    assert find_or_make(Registers({VARIABLE: AIRFLOW}), no_bucket) == AIRFLOW


def test_first_start_makes_it_and_the_next_finds_it(env: CloudEnv) -> None:
    """It is written into the Variable, and nothing else stays there."""
    registers = Registers()
    made = find_or_make(registers, lambda: env.stores.airflows)
    assert registers.values == {VARIABLE: made}
    assert checked(made) == find_or_make(registers, no_bucket)


def test_tasks_of_a_first_start_agree(env: CloudEnv) -> None:
    """However many tasks find no identity at the same moment, all of them have the same one after it."""
    registers, together = Registers(), Barrier(AT_ONCE)

    def task(_: int) -> str:
        together.wait(60)
        return find_or_make(registers, lambda: env.stores.airflows)

    with ThreadPoolExecutor(AT_ONCE) as tasks:
        assert set(tasks.map(task, range(AT_ONCE))) == {registers.values[VARIABLE]}


def test_two_airflows_of_one_bucket_get_two_identities(env: CloudEnv) -> None:
    """The choice of one first start means nothing to the other, although the bucket is the same."""
    made = {find_or_make(Registers(), lambda: env.stores.airflows) for _ in range(2)}
    assert len(made) == 2


def test_candidate_of_a_task_that_died_does_no_harm(env: CloudEnv) -> None:
    """The next task chooses among what it finds, and tidies up."""
    registers = Registers({f"{CANDIDATE}{AIRFLOW}": AIRFLOW})
    made = find_or_make(registers, lambda: env.stores.airflows)
    assert registers.values == {VARIABLE: made}


def test_variable_that_could_not_be_read_is_no_reason_for_a_new_identity(env: CloudEnv) -> None:
    """Airflow's client answers a server that stumbles as if there were no such Variable; the listing tells."""
    registers = Registers({VARIABLE: AIRFLOW}, unread=1)
    assert find_or_make(registers, lambda: env.stores.airflows) == AIRFLOW
    registers.unread = 2
    with pytest.raises(TransientError, match="could not be read"):
        find_or_make(registers, lambda: env.stores.airflows)
    assert registers.values[VARIABLE] == AIRFLOW


def test_variable_that_was_changed_is_refused(env: CloudEnv) -> None:
    """Also where it was first seen in the listing."""
    registers = Registers(before_keys=lambda: registers.values.update({VARIABLE: "prod"}))
    with pytest.raises(ConfigError, match="is not an identity"):
        find_or_make(registers, lambda: env.stores.airflows)


def test_name_is_written_and_follows_the_configuration(
    env: CloudEnv, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The bucket knows the Airflow by name and address; a change is logged, since the database may be a copy."""
    grant = GrantContext(Connections(), env.grant)
    monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__AIRFLOW_NAME", "laptop")
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "http://localhost:8080")
    with caplog.at_level(logging.WARNING):
        introduce(grant, AIRFLOW)
        introduce(grant, AIRFLOW)
        assert caplog.messages == []
        (first,) = env.stores.airflows.known().values()
        monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__AIRFLOW_NAME", "copy")
        introduce(grant, AIRFLOW)
    (renamed,) = env.stores.airflows.known().values()
    env.storage.upload("trc-local", f"airflow-tpu-shared/local-project/airflows/{AIRFLOW}.json", data="oops")
    introduce(grant, AIRFLOW)
    assert "is not written down" in caplog.text
    assert str(first) == f"Airflow 'laptop' at http://localhost:8080 ({AIRFLOW})"
    assert f"was known as {first} until now" in caplog.text
    assert (renamed.name, renamed.first_seen) == ("copy", first.first_seen)
