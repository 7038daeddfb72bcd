# SPDX-License-Identifier: Apache-2.0
"""The tasks around a lease: chips are taken with it, asked about before it, and given back after it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from airflow.sdk import DAG

from airflow_tpu.core.grant.alternatives import Alternative, CapacitySearch
from airflow_tpu.core.grant.authorize import Permit
from airflow_tpu.core.grant.reservations import Reservation
from airflow_tpu.core.request.run_conf import RunConf
from airflow_tpu.core.run.run_record import RunRecord
from airflow_tpu.core.tpu.labels import LABEL_IDENTITY, LeaseStamp, RunKey, labels
from airflow_tpu.core.tpu.spec import Tier
from airflow_tpu.errors import GrantError, GrantViolation, LeaseLost, TransientError
from airflow_tpu.lifecycle.project_snapshot import ProjectSnapshot
from airflow_tpu.operators.base import CloudTPUBaseOperator
from airflow_tpu.operators.grant import CloudTPUCheckGrantOperator
from airflow_tpu.operators.lease import CloudTPULeaseOperator
from airflow_tpu.operators.reaper import CloudTPUReaperOperator
from airflow_tpu.operators.tpu import CloudTPUDeleteOperator
from airflow_tpu.stores.grants import load_catalogue
from airflow_tpu.stores.reservations import ReservationStore
from airflow_tpu.stores.runs import RunStore
from airflow_tpu.task_groups import tpu_session
from tests.airflow_tpu.cloud_env import BUCKET, FORM, CloudEnv, context, now
from tests.airflow_tpu.identities import AIRFLOW, OTHER_AIRFLOW

KEYS = [RunKey(AIRFLOW, "tpu_train", f"run {number}") for number in range(6)]

Run = Callable[..., Any]


@pytest.fixture
def run(env: CloudEnv) -> Run:
    """Execute one task of one DAG run, as a worker does."""

    def execute(operator: type[CloudTPUBaseOperator], key: RunKey, **conf: Any) -> Any:
        task = operator(task_id="task", conf={**FORM, "tier": "on-demand", **conf}, poll_interval=0.1)
        return task.execute(context(key))

    return execute


@pytest.fixture
def runs(env: CloudEnv) -> RunStore:
    """Leases of the grant."""
    return env.runs


@pytest.fixture
def reservations(env: CloudEnv) -> ReservationStore:
    """Reservations of the grant."""
    return env.reservations


def test_chips_are_taken_with_the_lease(run: Run, runs: RunStore, reservations: ReservationStore) -> None:
    """A run that holds the lease holds its chips until the lease ends; taking it again is no second reservation."""
    for _ in range(2):
        run(CloudTPULeaseOperator, KEYS[0])
    (entry,) = reservations.read().entries
    assert (entry.run, entry.chips, entry.zone) == (KEYS[0].name, 4, "us-central1-f")
    assert entry.expires_at == runs.read(KEYS[0]).lease.expires_at


def test_run_without_room_fails_before_it_creates(run: Run, env: CloudEnv, runs: RunStore) -> None:
    """With five of five devices another person's the check and the lease task refuse a run, which leaves no lease."""
    for number in range(5):
        env.foreign_node(f"colleague-{number}")
    for task in (CloudTPUCheckGrantOperator, CloudTPULeaseOperator):
        with pytest.raises(GrantViolation, match=r"; nothing was created:\n(.|\n)*1 asked and 5 held"):
            run(task, KEYS[5])
    assert env.calls("CreateNode") == env.calls("CreateQueuedResource") == []
    with pytest.raises(LeaseLost):
        runs.read(KEYS[5])


@pytest.mark.parametrize("task", [CloudTPUCheckGrantOperator, CloudTPULeaseOperator])
def test_refusal_names_the_other_airflow_that_has_the_room(run: Run, env: CloudEnv, task: Any) -> None:
    """Who reads it learns whom to ask: the Airflow of a TPU and of a reservation by name, one of no name as unknown."""
    env.stores.airflows.introduce(OTHER_AIRFLOW, "prod", "https://prod.example.com")
    theirs = labels(RunKey(OTHER_AIRFLOW, "theirs", "r"), LeaseStamp("token", now() + dt.timedelta(hours=1), 1))
    env.foreign_node("theirs-1", theirs)
    env.foreign_node("theirs-2", {**theirs, LABEL_IDENTITY: "c3c3c3c3c3c3"})
    for number, airflow in enumerate((OTHER_AIRFLOW,) * 3):
        key = RunKey(airflow, "tpu_train", f"waits {number}")
        wanted = Reservation.of(key, env.order(tier=Tier.ON_DEMAND).spec, 4, now() + dt.timedelta(hours=1))
        env.reservations.take(wanted, lambda _: cast("Permit", None))
    with pytest.raises(GrantViolation) as caught:
        run(task, KEYS[5])
    prod = f"Airflow 'prod' at https://prod.example.com ({OTHER_AIRFLOW})"
    waits = RunKey(OTHER_AIRFLOW, "tpu_train", "waits 0").name
    for words in (
        f"theirs-1 (v2-8) of {prod}",
        f"reservation of {waits} (v2-8) of tpu_train waits 0 of {prod}",
        "theirs-2 (v2-8) of an Airflow that this bucket does not know (c3c3c3c3c3c3)",
    ):
        assert words in str(caught.value)
    assert AIRFLOW not in str(caught.value)


def test_run_that_waits_for_our_own_runs_has_its_lease(
    run: Run, runs: RunStore, reservations: ReservationStore, caplog: pytest.LogCaptureFixture
) -> None:
    """With five of five devices our own the check says that the sixth run waits, and its lease takes no chips."""
    for key in KEYS[:5]:
        run(CloudTPULeaseOperator, key)
    (reason,) = run(CloudTPUCheckGrantOperator, KEYS[5])["waits_for"]
    assert f"1 asked and 5 held are more than 5 on-demand v2-8 devices in {FORM['zone']}" in reason
    assert run(CloudTPULeaseOperator, KEYS[5])["run"] == KEYS[5].name
    assert runs.read(KEYS[5]).incarnation == 0
    assert reservations.read().of(KEYS[5].digest) is None
    assert "no room yet, the task create waits for it" in caplog.text


BEFORE = pytest.mark.parametrize("task", [CloudTPUCheckGrantOperator, CloudTPULeaseOperator])


@BEFORE
def test_a_list_without_the_zone_is_asked_again(run: Run, env: CloudEnv, task: type[CloudTPUBaseOperator]) -> None:
    """A zone that does not answer once fails neither the check nor the lease."""
    fault = env.cloud.add_fault("tpu.zone", {"zone": FORM["zone"]}, times=2, action="unreachable")
    run(task, KEYS[0])
    assert fault not in env.cloud.cloud.faults.unused()


@BEFORE
def test_a_zone_that_does_not_answer_is_no_refusal(
    run: Run, env: CloudEnv, runs: RunStore, task: type[CloudTPUBaseOperator]
) -> None:
    """After a few looks the try ends with an error that is tried again, and nothing is held."""
    env.cloud.add_fault("tpu.zone", {"zone": FORM["zone"]}, times=1000, action="unreachable")
    with pytest.raises(TransientError, match=f"zone {FORM['zone']} did not answer"):
        run(task, KEYS[0])
    assert len(env.calls("ListNodes")) <= 5
    with pytest.raises(LeaseLost):
        runs.read(KEYS[0])


def test_refused_lease_with_a_history_is_kept(run: Run, runs: RunStore) -> None:
    """A run that has asked for TPUs before keeps its lease when it is refused: the reaper needs it to clean up."""
    run(CloudTPULeaseOperator, KEYS[0])
    runs.update(runs.read(KEYS[0]), RunRecord.next_incarnation)
    with pytest.raises(GrantError):
        run(CloudTPULeaseOperator, KEYS[0], zone="us-central1-b")
    assert runs.read(KEYS[0]).incarnation == 1


def test_teardown_gives_the_chips_back(run: Run, reservations: ReservationStore) -> None:
    """After the teardown the next run gets the device, also when the teardown runs twice or after nothing."""
    for key in KEYS[:5]:
        run(CloudTPULeaseOperator, key)
    for _ in range(2):
        run(CloudTPUDeleteOperator, KEYS[0])
    run(CloudTPULeaseOperator, KEYS[5])
    assert {entry.run for entry in reservations.read().entries} == {key.name for key in KEYS[1:]}


def test_reaper_gives_back_what_nobody_holds_a_lease_for(
    run: Run, runs: RunStore, reservations: ReservationStore
) -> None:
    """A reservation whose lease is gone, as after a crash in between, is free after its next round; so is a wait."""
    for key in KEYS:
        run(CloudTPULeaseOperator, key)
    for key in KEYS:
        runs.release(key)
    assert len(reservations.read().waiting) == 1
    reaped = CloudTPUReaperOperator(task_id="reap").execute(context(KEYS[1]))
    assert set(reaped["released"]) == {key.name for key in KEYS}
    assert reservations.read().all == ()


def test_bucket_of_another_project_is_a_reason(env: CloudEnv) -> None:
    """The number that the grant was given for is compared with the bucket's, and a refusal names both."""
    number = "999999999999"
    env.cloud.call(lambda: env.cloud.cloud.storage.create_bucket("elsewhere", "US-CENTRAL1", number))
    order = replace(env.order(), project_number=env.storage.facts.project_number("elsewhere"))
    with pytest.raises(GrantViolation, match=rf"project_number = '{number}'.* nearest: {env.grant.project_number}"):
        order.permit(ProjectSnapshot((), (), ()), env.lease(), now())


def test_unreadable_number_is_not_held_against_the_run(env: CloudEnv) -> None:
    """Where the metadata of the grant's bucket may not be read the project's number is unknown, and not guessed."""
    env.cloud.add_fault("gcs.request", {"op": "buckets.get", "bucket": BUCKET}, action="403")
    order = replace(env.order(), project_number=env.storage.facts.project_number(BUCKET))
    assert order.project_number is None
    order.permit(ProjectSnapshot((), (), ()), env.lease(), now())
    assert env.cloud.cloud.faults.unused() == []


SEARCHED = Alternative("us-central1-a", "v5litepod-4", "v2-alpha-tpuv5-lite", Tier.SPOT)
"""Where a run has got to that has found no capacity anywhere else."""


def walked(run: Run, runs: RunStore) -> None:
    """A run that has tried all its alternatives, and asks for the last."""
    run(CloudTPULeaseOperator, KEYS[0], tier="spot", on_stock_out="walk")
    tried = CapacitySearch(
        now(), 1, (Alternative.asked(RunConf.parse({**FORM, "tier": "spot"}, load_catalogue())), SEARCHED)
    )
    runs.update(
        runs.read(KEYS[0]),
        lambda record: replace(record.next_incarnation(), alternative=SEARCHED, capacity_search=tried),
    )


def use_up_what_it_found(reservations: ReservationStore) -> None:
    """Others take all chips of that row."""
    others = Reservation(
        "others", OTHER_AIRFLOW, "others", "v5litepod-64", Tier.SPOT, SEARCHED.zone, 64, now() + dt.timedelta(hours=1)
    )
    reservations.take(others, lambda _: cast(Permit, None))


def test_cleared_run_begins_its_search_anew(
    run: Run, runs: RunStore, reservations: ReservationStore, caplog: pytest.LogCaptureFixture
) -> None:
    """A run whose last alternative others have used up meanwhile begins its search anew, and says so."""
    walked(run, runs)
    use_up_what_it_found(reservations)
    run(CloudTPULeaseOperator, KEYS[0], tier="spot", on_stock_out="walk")
    record = runs.read(KEYS[0])
    assert record.alternative is not None
    assert (record.alternative.zone, record.alternative.accelerator_type, record.capacity_search) == (
        "us-central1-f",
        "v2-8",
        None,
    )
    (mine,) = [entry for entry in reservations.read().entries if entry.run == KEYS[0].name]
    assert (mine.zone, mine.accelerator_type) == ("us-central1-f", "v2-8")
    assert "begins anew, with spot v2-8 in us-central1-f" in caplog.text


def test_cleared_run_goes_on_where_its_search_was(run: Run, runs: RunStore) -> None:
    """As long as the grant has room for what a run asked for last, a clear changes neither that nor its search."""
    walked(run, runs)
    before = runs.read(KEYS[0])
    run(CloudTPULeaseOperator, KEYS[0], tier="spot", on_stock_out="walk")
    after = runs.read(KEYS[0])
    assert (after.alternative, after.capacity_search) == (before.alternative, before.capacity_search)


@pytest.mark.parametrize("ours", [True, False])
def test_cleared_run_without_room_anywhere(
    run: Run, env: CloudEnv, runs: RunStore, reservations: ReservationStore, ours: bool
) -> None:
    """Without room for any alternative it is refused about what the form asks for, which it waits for if it is ours."""
    run(CloudTPULeaseOperator, KEYS[0])
    runs.update(runs.read(KEYS[0]), lambda record: replace(record.next_incarnation(), alternative=SEARCHED))
    reservations.release(KEYS[0].digest)
    use_up_what_it_found(reservations)
    for number, key in enumerate(KEYS[1:]):
        run(CloudTPULeaseOperator, key) if ours else env.foreign_node(f"colleague-{number}")
    if ours:
        run(CloudTPULeaseOperator, KEYS[0])
        return
    with pytest.raises(GrantViolation, match="1 asked and 5 held"):
        run(CloudTPULeaseOperator, KEYS[0])


def test_session_inside_does_not_wait_for_the_one_around(env: CloudEnv, reservations: ReservationStore) -> None:
    """The last device that a session has makes one inside of it fail, by name; one beside it waits for that device."""
    conf = {**FORM, "tier": "on-demand"}
    with DAG("nested", schedule=None) as dag:
        with tpu_session(conf=conf, group_id="outer"), tpu_session(conf=conf, group_id="inner"):
            pass
        with tpu_session(conf=conf, group_id="beside"):
            pass
    for number in range(4):
        env.foreign_node(f"colleague-{number}")
    names = ("outer", "outer.inner", "beside")
    outer, inner, beside = (cast(CloudTPULeaseOperator, dag.get_task(f"{name}.lease")) for name in names)
    key = RunKey(AIRFLOW, "nested", "manual")
    outer.execute(context(key))
    with pytest.raises(GrantViolation, match="is of the session around this one, which ends only after it"):
        inner.execute(context(key))
    beside.execute(context(key))
    found = reservations.read()
    assert [len(found.entries), len(found.waiting)] == [1, 1]
