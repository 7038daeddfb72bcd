# SPDX-License-Identifier: Apache-2.0
"""Names and labels derived from a DAG run."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_tpu.core.tpu import labels
from airflow_tpu.core.tpu.labels import LeaseStamp, RunKey
from tests.airflow_tpu.identities import AIRFLOW

NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
EXPIRY = datetime(2026, 11, 28, 2, tzinfo=UTC)

# Ids that Airflow really makes or takes, see section O of the trouble log.
ODD_KEYS = [
    RunKey(AIRFLOW, "tpu_train", "manual__2026-11-27T00:00:00+00:00"),
    RunKey(AIRFLOW, "tpu_train", "scheduled__2026-11-27T02:00:00.123456+09:00"),
    RunKey(AIRFLOW, "tpu_train", "asset_triggered__2026-11-27T02:00:00+00:00"),
    RunKey(AIRFLOW, "tpu_train", "My Run #1 (retry)"),
    RunKey(AIRFLOW, "tpu_train", "r" * 250),
    RunKey(AIRFLOW, "team.area." * 25, "manual__1"),
    RunKey(AIRFLOW, "9lives", "1"),
    RunKey(AIRFLOW, "UPPER_Case", "X", 1000),
    RunKey(AIRFLOW, "---", "..."),
    RunKey(AIRFLOW, "학습", "실행"),
    RunKey(AIRFLOW, "a" * 33 + "-b", "1"),
]
keys = st.builds(
    RunKey,
    st.just(AIRFLOW),
    st.text(min_size=1, max_size=250),
    st.text(min_size=1, max_size=250),
    st.integers(-1, 5000),
    st.text(max_size=250),
)


@pytest.mark.parametrize("key", ODD_KEYS, ids=lambda key: key.dag_id[:20])
def test_odd_ids_make_valid_names(key: RunKey) -> None:
    """Whatever ids Airflow allows, the name and the node id follow Google's rules."""
    assert NAME.fullmatch(key.name)
    assert len(key.name) <= 45
    assert NAME.fullmatch(key.node_id(1000))


@given(keys, st.integers(0, 10**15))
def test_names_are_always_valid(key: RunKey, incarnation: int) -> None:
    """No text makes a name that Google refuses."""
    assert NAME.fullmatch(key.name)
    assert len(key.name) <= 45
    node_id = key.node_id(incarnation)
    assert NAME.fullmatch(node_id)
    assert len(node_id) <= 63
    assert node_id.startswith(f"{key.name}-")


@given(keys, keys, st.integers(0, 999), st.integers(0, 999))
def test_node_ids_are_distinct(one: RunKey, other: RunKey, first: int, second: int) -> None:
    """Two incarnations share a node id only if run and number are the same."""
    assert (one.node_id(first) == other.node_id(second)) == ((one, first) == (other, second))


SESSIONS = [replace(key, session=name) for key in ODD_KEYS for name in ("", "big", "학습", "Sweep.learning_rate__1")]


def test_sessions_of_a_dag_run_are_told_apart_and_found_together() -> None:
    """Each has a name of its own, which begins as all names of its DAG do, and all share the digest of the DAG run."""
    assert len({key.name for key in SESSIONS}) == len(SESSIONS)
    assert all(NAME.fullmatch(key.name) and len(key.name) <= 45 for key in SESSIONS)
    for key in SESSIONS:
        whole = replace(key, session="", map_index=-1)
        assert whole.has_sibling(key.name)
        assert key.dag_run == whole.dag_run
        found = labels.labels(key, LeaseStamp("a1b2", EXPIRY, 1))
        assert [one for one in ODD_KEYS if labels.is_of_dag_run(found, one)] == [replace(key, session="")]
    assert not RunKey(AIRFLOW, "tpu_train", "1").has_sibling("tpu-train-precious")


@given(keys)
def test_labels_follow_the_rules(key: RunKey) -> None:
    """Every label key and value is one that Google accepts."""
    found = labels.labels(key, LeaseStamp("a1b2", EXPIRY, 3))
    assert all(LABEL_KEY.fullmatch(name) for name in found)
    assert all(LABEL_VALUE.fullmatch(value) for value in found.values())


def test_the_map_index_makes_another_run() -> None:
    """A mapped task has a TPU of its own per index, and -1 is not an index."""
    plain, first = RunKey(AIRFLOW, "dag", "run"), RunKey(AIRFLOW, "dag", "run", 0)
    assert plain.digest != first.digest
    stamp = LeaseStamp("t", EXPIRY, 1)
    assert labels.LABEL_MAP_INDEX not in labels.labels(plain, stamp)
    assert labels.labels(first, stamp)[labels.LABEL_MAP_INDEX] == "0"


def test_where_the_ids_meet_matters() -> None:
    """Moving a letter from the run id to the DAG id makes another digest."""
    assert RunKey(AIRFLOW, "ab", "c").digest != RunKey(AIRFLOW, "a", "bc").digest


def test_labels_are_read_back() -> None:
    """The owner, the token, the expiry and the incarnation survive the way through labels."""
    key = RunKey(AIRFLOW, "dag", "run")
    found = labels.labels(key, LeaseStamp("token-1", EXPIRY, 7))
    assert labels.is_ours(found, key)
    assert labels.run_of(found) == key.digest
    assert labels.token_of(found) == "token-1"
    assert labels.expires_of(found) == EXPIRY
    assert labels.incarnation_of(found) == 7


def test_a_colleagues_labels_are_not_ours() -> None:
    """A label of ours on a TPU that does not say it is managed by this package means nothing."""
    found = labels.labels(RunKey(AIRFLOW, "dag", "run"), LeaseStamp("token", EXPIRY, 1))
    del found[labels.LABEL_MANAGED_BY]
    assert not labels.is_ours(found, RunKey(AIRFLOW, "dag", "run"))
    assert not labels.is_managed(found)
    readings = (labels.run_of(found), labels.token_of(found), labels.expires_of(found), labels.incarnation_of(found))
    assert readings == (None, None, None, None)


@pytest.mark.parametrize("garbage", ["", "soon", "-5", "1e9", "9" * 40, "１２"])
def test_an_unreadable_expiry_is_none(garbage: str) -> None:
    """A label that a person has edited is no expiry, and does not crash the reaper."""
    found = {labels.LABEL_MANAGED_BY: labels.MANAGED_BY, labels.LABEL_EXPIRES: garbage}
    assert labels.expires_of(found) is None


def test_expiry_is_written_in_utc_seconds() -> None:
    """The label does not depend on the timezone of the worker."""
    seoul = EXPIRY.astimezone(ZoneInfo("Asia/Seoul"))
    stamps = (LeaseStamp("t", EXPIRY, 1), LeaseStamp("t", seoul, 1))
    written = {labels.labels(RunKey(AIRFLOW, "d", "r"), stamp)[labels.LABEL_EXPIRES] for stamp in stamps}
    assert written == {str(int(EXPIRY.timestamp()))}


@pytest.mark.parametrize("token", ["", "Upper", "a b", "x" * 64, "a/b"])
def test_a_token_must_be_a_label_value(token: str) -> None:
    """A token that Google would refuse is refused before it is sent."""
    with pytest.raises(ValueError, match="token"):
        LeaseStamp(token, EXPIRY, 1)


def test_a_stamp_needs_a_timezone() -> None:
    """A naive expiry would mean another instant on another machine."""
    with pytest.raises(ValueError, match="timezone"):
        LeaseStamp("t", datetime(2026, 1, 1), 1)  # noqa: DTZ001 - the point of the test


@pytest.mark.parametrize("incarnation", [-1, 10**30])
def test_no_node_id_beyond_the_limit(incarnation: int) -> None:
    """A number that makes no valid id is refused, not cut."""
    with pytest.raises(ValueError, match="no node id"):
        RunKey(AIRFLOW, "d" * 50, "run").node_id(incarnation)
