# SPDX-License-Identifier: Apache-2.0
"""The identity of an Airflow: what it may look like, how a first start chooses one, and whose a TPU is."""

from __future__ import annotations

import datetime as dt
import json
from itertools import permutations

import pytest

from airflow_tpu.core.tpu.identity import KNOWN_AIRFLOW_FORM, VARIABLE, Airflows, KnownAirflow, checked, chosen
from airflow_tpu.core.tpu.labels import LABEL_IDENTITY, LeaseStamp, RunKey, labels
from airflow_tpu.errors import ConfigError
from tests.airflow_tpu.identities import AIRFLOW, OTHER_AIRFLOW

NOW = dt.datetime(2026, 11, 27, 12, 0, tzinfo=dt.UTC)
PROD = KnownAirflow(OTHER_AIRFLOW, "prod", "https://prod.example.org", NOW)
STAMP = LeaseStamp("token", NOW, 1)


def test_identity_of_the_variable_is_taken_as_it_is() -> None:
    """Space around it, as a person pastes it, does not count."""
    assert checked(f" {AIRFLOW}\n") == AIRFLOW


@pytest.mark.parametrize("text", ["", "prod", AIRFLOW.upper(), f"{AIRFLOW}0", 12, None])
def test_anything_else_is_refused(text: object) -> None:
    """A Variable that a person has changed is an error that names it, never the identity of a new Airflow."""
    with pytest.raises(ConfigError, match=rf"{VARIABLE} = .*12 hexadecimal digits.*value that it had"):
        checked(text)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_all_processes_of_a_first_start_choose_the_same(order: tuple[int, ...]) -> None:
    """Each list contains the shorter ones, in whatever order their owners get to the bucket."""
    for names in permutations("abc"):
        written: dict[str, str] = {}
        lists = [names[: size + 1] for size in range(3)]
        found = {chosen(lists[which], names[which], written.setdefault) for which in order}
        assert len(found) == 1, (names, order, found)


def test_equal_ids_of_two_airflows_are_two_runs() -> None:
    """Digest, name, node id and labels differ, so neither adopts, leases, reserves or deletes what the other has."""
    ours, theirs = RunKey(AIRFLOW, "nightly", "scheduled__1"), RunKey(OTHER_AIRFLOW, "nightly", "scheduled__1")
    assert ours.digest != theirs.digest
    assert ours.node_id(1) != theirs.node_id(1)
    assert labels(ours, STAMP)[LABEL_IDENTITY] == AIRFLOW


def test_owner_of_a_tpu_in_words() -> None:
    """A TPU is this Airflow's, another one's by name, an unknown one's, or not made by this package."""
    airflows = Airflows(AIRFLOW, {OTHER_AIRFLOW: PROD})
    ours, theirs = (labels(RunKey(one, "d", "r"), STAMP) for one in (AIRFLOW, OTHER_AIRFLOW))
    assert (airflows.owns(ours), airflows.owns(theirs), airflows.owns({})) == (True, False, False)
    assert airflows.owner(theirs) == f"of Airflow 'prod' at https://prod.example.org ({OTHER_AIRFLOW})"
    assert "does not know" in Airflows(AIRFLOW).owner(theirs)
    assert "unknown Airflow" in airflows.owner({**ours, LABEL_IDENTITY: ""})
    assert airflows.owner({}) == "not made by this package"


def test_without_an_identity_nothing_is_ours() -> None:
    """A TPU without the label is not taken for one of an Airflow without an identity."""
    ours = labels(RunKey(AIRFLOW, "d", "r"), STAMP)
    unknown = {name: value for name, value in ours.items() if name != LABEL_IDENTITY}
    assert not Airflows(None).owns(ours)
    assert not Airflows(None).owns(unknown)


@pytest.mark.parametrize(
    ("name", "address", "text"),
    [
        ("", "", f"Airflow ({OTHER_AIRFLOW})"),
        ("prod", "", f"Airflow 'prod' ({OTHER_AIRFLOW})"),
        ("", "http://prod", f"Airflow at http://prod ({OTHER_AIRFLOW})"),
    ],
)
def test_name_says_what_is_known(name: str, address: str, text: str) -> None:
    """Whatever is missing is left out; the identity is always there."""
    assert str(KnownAirflow(OTHER_AIRFLOW, name, address, NOW)) == text


def test_name_in_the_bucket_reads_back() -> None:
    """Through real JSON text."""
    assert KNOWN_AIRFLOW_FORM.from_json(json.loads(json.dumps(KNOWN_AIRFLOW_FORM.to_json(PROD)))) == PROD
