# SPDX-License-Identifier: Apache-2.0
"""What is alive: gauges, cost classes and orphans."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_tpu.core.tpu.identity import Airflows, KnownAirflow
from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.core.tpu.spec import Tier
from airflow_tpu.lifecycle.project_snapshot import ProjectSnapshot
from airflow_tpu.ui.living_tpus import gauges, orphan_table, orphans, tpus
from airflow_tpu.ui.logins import logins
from airflow_tpu.ui.parts import HIDDEN, Reader
from airflow_tpu.ui.snapshot import Snapshot
from tests.airflow_tpu.core.grant import two_rows
from tests.airflow_tpu.identities import AIRFLOW, OTHER_AIRFLOW
from tests.airflow_tpu.ui.made import ALL, HOUR, KEY, NOW, ROW, ZONE, grant, node, opened, queued, record, snapshot

UNKNOWN_ROWS = {"in_use": None, "dead": None, "idle": None, "over": None}


def gauge(known: Snapshot, number: int = 0) -> dict[str, Any]:
    """One gauge without its name."""
    found = gauges(known)
    assert found is not None
    return {name: found[number][name] for name in ("in_use", "dead", "idle", "over")}


def row(known: Snapshot, name: str) -> dict[str, dict[str, str]]:
    """The row of a TPU by its columns."""
    data = tpus(known, ALL)
    (found,) = (cells for cells in data["rows"] if cells[0]["text"] == name)
    return dict(zip((column["text"] for column in data["columns"]), found, strict=True))


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, {"in_use": 0, "dead": 0, "idle": 2, "over": 0}),
        (1, {"in_use": 1, "dead": 0, "idle": 1, "over": 0}),
        (3, {"in_use": 3, "dead": 0, "idle": 0, "over": 1}),
    ],
)
def test_a_gauge_tells_used_idle_and_over(count: int, expected: dict[str, int]) -> None:
    """Devices in use and idle add up to the allowance, and what is beyond it stands apart."""
    assert gauge(snapshot([node(f"n{number}") for number in range(count)])) == expected


def test_a_gauge_of_chips_counts_chips() -> None:
    """A v5litepod-4 takes four of eight chips."""
    small = node("small", accelerator_type="v5litepod-4", zone="us-central1-a")
    assert gauge(snapshot([small]), 1) == {"in_use": 4, "dead": 0, "idle": 4, "over": 0}


def test_multislice_in_the_queue_is_in_the_gauge_with_all_its_nodes() -> None:
    """A request for three nodes takes three devices, and each node has its line with what it waits for."""
    asked = replace(queued("q"), node_ids=("q-0", "q-1", "q-2"))
    known = snapshot(project=ProjectSnapshot((), (asked,), ()))
    assert gauge(known) == {"in_use": 3, "dead": 0, "idle": 0, "over": 1}
    names = [cells[0]["note"] for cells in tpus(known, ALL)["rows"]]
    assert names == [f"waits for its node q-{number}" for number in range(3)]


def test_a_tpu_counts_in_one_gauge_only() -> None:
    """Where a device row and a chips row are about the same type, each TPU is in the gauge of the row it belongs to."""
    both = two_rows.two_rows(grant(), devices=5)
    place: dict[str, Any] = {"accelerator_type": two_rows.KIND, "zone": two_rows.ZONE}
    known = snapshot([node(f"n{number}", **place) for number in range(2)], grant=both)
    assert gauge(known, 0) == {"in_use": 0, "dead": 0, "idle": 8, "over": 0}
    assert gauge(known, 1) == {"in_use": 2, "dead": 0, "idle": 3, "over": 0}
    six = snapshot([node(f"n{number}", **place) for number in range(6)], grant=both)
    assert (gauge(six, 0)["in_use"], gauge(six, 1)["in_use"]) == (8, 5)
    classes = [row(six, f"n{number}")["Cost class"] for number in range(6)]
    assert {cost["text"] for cost in classes} == {"covered"}
    assert sorted(cost["note"] for cost in classes) == [str(both.allowances[1])] * 5 + [two_rows.CHIPS_ROW]


def test_a_dead_tpu_is_neither_used_nor_idle() -> None:
    """A preempted node leaves less to ask for, but is not over the allowance, since it is not charged."""
    known = snapshot([node("a"), node("b"), node("dead", state="PREEMPTED")])
    assert gauge(known) == {"in_use": 2, "dead": 1, "idle": 0, "over": 0}
    assert row(known, "dead")["Cost class"]["text"] == "dead"
    assert row(known, "a")["Cost class"]["text"] == "covered"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"project": None}, "what is alive could not be read"),
        ({"project": ProjectSnapshot((), (), (ZONE,))}, f"{ZONE} did not answer"),
        ({"project": ProjectSnapshot((node("odd", accelerator_type="v9-x"),), (), ())}, "odd (v9-x) cannot be counted"),
    ],
)
def test_a_gauge_without_knowledge_says_unknown(changes: dict[str, Any], why: str) -> None:
    """A gauge whose figures cannot be known has none, and says why; it never shows zero."""
    found = gauges(snapshot(**changes))
    assert found is not None
    assert gauge(snapshot(**changes)) == UNKNOWN_ROWS
    assert found[0]["text"].startswith("unknown: ")
    assert why in found[0]["text"]


def test_without_a_grant_there_is_no_gauge() -> None:
    """A grant that cannot be read gives no gauges at all, not empty ones."""
    assert gauges(snapshot(grant=None)) is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ("covered", ROW)),
        ({"tier": Tier.PREEMPTIBLE}, ("covered", ROW)),
        ({"tier": Tier.ON_DEMAND}, ("billed", "no allowance covers its type, tier and zone")),
        ({"zone": "us-central1-b"}, ("billed", "no allowance covers its type, tier and zone")),
        ({"accelerator_type": "v3-8"}, ("billed", "no allowance covers its type, tier and zone")),
        ({"accelerator_type": "v9-x"}, ("unknown", "the chips of v9-x cannot be counted")),
        ({"state": "STOPPED"}, ("dead", "holds quota until it is deleted")),
        ({"state": "A_NEW_STATE"}, ("covered", ROW)),
    ],
)
def test_the_cost_class_of_one_tpu(changes: dict[str, Any], expected: tuple[str, str]) -> None:
    """A TPU is covered only if type, tier and zone are in one row of the grant."""
    found = row(snapshot([node("one", **changes)]), "one")["Cost class"]
    assert (found["text"], found["note"]) == expected


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        ({"days": 30}, "the grant ended 2026-10-31 00:00 UTC"),
        ({"start": "2026-12-01"}, "the grant starts 2026-12-01 00:00 UTC"),
    ],
)
def test_outside_the_term_everything_is_billed(term: dict[str, Any], expected: str) -> None:
    """A TPU that a row would cover is billed before and after the grant."""
    found = row(snapshot([node("one")], grant=grant(**term)), "one")["Cost class"]
    assert (found["text"], found["note"], found["tone"]) == ("billed", expected, "bad")


def test_more_than_the_allowance_is_billed_in_part() -> None:
    """Three TPUs on an allowance of two are all marked, since it is unknown which of them is billed."""
    known = snapshot([node(f"n{number}") for number in range(3)])
    assert {row(known, f"n{number}")["Cost class"]["text"] for number in range(3)} == {"over the allowance"}


def test_a_tpu_that_somebody_pays_for_puts_no_other_over_the_allowance() -> None:
    """The TPU whose bill was accepted is the one beyond the row; those that the grant was asked for stay covered."""
    paid = opened(KEY, 1, allowance=None, paid_reason="deadline on Friday")
    names = [KEY.node_id(1), "n1", "n2"]
    known = snapshot([node(names[0], KEY), node("n1"), node("n2")], [paid], [record()])
    assert [row(known, name)["Cost class"]["text"] for name in names] == ["paid, accepted", "covered", "covered"]
    assert gauge(known) == {"in_use": 3, "dead": 0, "idle": 0, "over": 1}


def test_without_a_grant_the_cost_class_is_unknown() -> None:
    """A TPU whose grant cannot be read is not called free."""
    assert row(snapshot([node("one")], grant=None), "one")["Cost class"]["text"] == "unknown"


def test_an_accepted_bill_shows_its_reason() -> None:
    """A TPU with an accepted bill says so, although a row of the grant would fit it."""
    paid = opened(allowance=None, paid_reason="deadline on Friday")
    found = row(snapshot([node(KEY.node_id(1), KEY)], [paid], [record()]), KEY.node_id(1))["Cost class"]
    assert (found["text"], found["note"]) == ("paid, accepted", "deadline on Friday")


def test_what_costs_money_stands_first() -> None:
    """Billed TPUs come before covered ones."""
    data = tpus(snapshot([node("good"), node("bad", accelerator_type="v3-8")]), ALL)
    assert [cells[0]["text"] for cells in data["rows"]] == ["bad", "good"]


def test_a_tpu_leads_to_its_run_and_to_the_console() -> None:
    """Our TPU links to its DAG run, with every special character quoted, and to its page in the console."""
    created = node(KEY.node_id(1), KEY, created_at=NOW - 26 * HOUR)
    found = row(snapshot([created], records=[record()]), KEY.node_id(1))
    assert found["Run"]["href"] == "../dags/tpu_train/runs/manual__2026-11-20T10%3A00%3A00%2B00%3A00"
    console = "https://console.cloud.google.com/compute/tpus/details/us-central1-f/"
    assert found["TPU"]["href"] == f"{console}{KEY.node_id(1)}?project=my-project"
    assert found["Age"]["text"] == "1 d 2 h"


def test_an_age_that_nobody_knows_is_unknown() -> None:
    """A TPU without a creation time and without a ledger record has no age, not the age zero."""
    assert row(snapshot([node("one")]), "one")["Age"]["text"] == "unknown"


def test_a_queued_resource_counts_before_its_node_is_there() -> None:
    """A request that waits is shown with its state, and once its node is there only the node is."""
    waiting = ProjectSnapshot((), (queued("q"),), ())
    assert row(snapshot(project=waiting), "q")["State"]["text"] == "WAITING_FOR_RESOURCES"
    both = ProjectSnapshot((node("q"),), (queued("q", "ACTIVE"),), ())
    assert [cells[1]["text"] for cells in tpus(snapshot(project=both), ALL)["rows"]] == ["READY"]


def test_a_zone_without_an_answer_is_named() -> None:
    """An empty list with a silent zone is no proof that nothing is alive."""
    data = tpus(snapshot(project=ProjectSnapshot((), (), (ZONE,))), ALL)
    assert "unknown" in data["empty"]
    assert ZONE in data["more"]


def test_a_dag_that_the_reader_may_not_see_has_no_name() -> None:
    """Neither DAG, run, link nor the DAG's part of the TPU's name is shown to who may not see the DAG."""
    secret = RunKey(AIRFLOW, "secret_dag", "manual__1")
    known = snapshot([node(secret.node_id(1), secret)], records=[record(secret)])
    data = tpus(known, Reader({"tpu_train"}))
    ((name, *_, run, _cost),) = data["rows"]
    assert name == {"text": f"*-{secret.digest}-1"}
    assert run == {"text": HIDDEN}


def test_a_forgotten_run_is_named_to_those_only_who_see_all() -> None:
    """The name of a TPU of an unknown run begins with a DAG's name, which a reader of some DAGs may not see."""
    known = snapshot([node(KEY.node_id(1), KEY)])
    for reader, name in ((ALL, KEY.node_id(1)), (Reader({"tpu_train"}), f"*-{KEY.digest}-1")):
        shown = {data["rows"][0][0]["text"] for data in (tpus(known, reader), orphan_table(known, reader))}
        assert shown == {name}


@pytest.mark.parametrize(
    ("expires_at", "records", "reason"),
    [
        (NOW + HOUR, [], "no run holds a lease on it"),
        (NOW - HOUR, [record(expires_at=NOW - HOUR)], "its lease ended 2026-11-20 11:00 UTC"),
    ],
)
def test_a_tpu_of_ours_without_a_living_lease_is_an_orphan(expires_at: Any, records: list[Any], reason: str) -> None:
    """What carries our label and has no lease, or one that has ended, is listed with the reason."""
    data = orphan_table(snapshot([node(KEY.node_id(1), KEY, expires_at)], records=records), ALL)
    assert [[cell["text"] for cell in cells[:2]] for cells in data["rows"]] == [[KEY.node_id(1), reason]]


def test_what_is_leased_or_not_ours_is_no_orphan() -> None:
    """A TPU with a living lease, and one that another user made, are left alone."""
    data = orphan_table(snapshot([node(KEY.node_id(1), KEY), node("annas")], records=[record()]), ALL)
    assert data["rows"] == []
    assert data["empty"].startswith("none")


def test_orphans_are_unknown_without_leases() -> None:
    """Leases that cannot be read make no TPU an orphan and prove that none is."""
    data = orphan_table(snapshot([node(KEY.node_id(1), KEY)], records=None, problems={"leases": "403"}), ALL)
    assert data["rows"] == []
    assert data["empty"] == "unknown: 403"


def test_a_tpu_of_another_airflow_is_named_and_is_no_orphan() -> None:
    """The page says whose it is, links to no DAG run of these ids here, and leaves its lease to its Airflow."""
    theirs = RunKey(OTHER_AIRFLOW, KEY.dag_id, KEY.run_id)
    known = KnownAirflow(OTHER_AIRFLOW, "prod", "", NOW)
    found = snapshot([node("their-1", theirs, NOW - HOUR)], airflows=Airflows(AIRFLOW, {OTHER_AIRFLOW: known}))
    assert row(found, "their-1")["Run"] == {"text": "of another Airflow", "note": f"of {known}"}
    assert orphans(found) == []
    assert logins(found, ALL) == []
