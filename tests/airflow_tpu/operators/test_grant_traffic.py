# SPDX-License-Identifier: Apache-2.0
"""The two dearest accidents on record, data that lies in another region than the TPU, end before a TPU is asked for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_tpu.core.catalogue.transfer_rates import StoredSize
from airflow_tpu.core.ledger.events import Opened, Transfer
from airflow_tpu.core.model.model import Champion
from airflow_tpu.errors import GrantError, GrantUnknown, GrantViolation
from airflow_tpu.lifecycle.connections import Connections
from airflow_tpu.lifecycle.run_context import RunContext
from airflow_tpu.operators.grant import CloudTPUCheckGrantOperator
from airflow_tpu.operators.lease import CloudTPULeaseOperator
from airflow_tpu.stores.models import ModelStore
from tests.airflow_tpu.cloud_env import BUCKET, FORM, KEY, ROOT, CloudEnv, context
from tests.airflow_tpu.core.grant.accepted import completed

FAR = "gs://far-away/images"
MIB = 1024**2
CONF = {**FORM, "tier": "on-demand", "data_uri": FAR}

Make = Callable[[str], None]


@pytest.fixture
def bucket(env: CloudEnv) -> Make:
    """Create the bucket of the data somewhere, with 3 MiB of images and as much that is not the run's."""

    def make(location: str) -> None:
        env.cloud.call(lambda: env.cloud.cloud.storage.create_bucket("far-away", location))
        for name in ("images/1.tfrecord", "images/b/2.tfrecord", "images/3.tfrecord", "images-of-others/1.tfrecord"):
            env.storage.upload(bucket_name="far-away", object_name=name, data=bytes(MIB))

    return make


def refusal(env: CloudEnv, **conf: str) -> GrantError:
    """Why a run is refused, by its first task and by the one that takes the chips; no TPU is asked for."""
    reasons = []
    for task in (CloudTPUCheckGrantOperator, CloudTPULeaseOperator):
        with pytest.raises(GrantError) as caught:
            task(task_id="task", conf={**CONF, **conf}).execute(context())
        reasons.append(caught.value.faults)
    assert reasons[0] == reasons[1]
    assert env.calls("CreateNode") == env.calls("CreateQueuedResource") == []
    return caught.value


def test_data_in_another_region(env: CloudEnv, bucket: Make) -> None:
    """A1: a run whose data is in another region fails first and says how many GiB each pass moves."""
    bucket("EUROPE-WEST4")
    error = refusal(env)
    assert isinstance(error, GrantViolation)
    (fault,) = error.faults
    assert (fault.value, fault.nearest) == (FAR, "US-CENTRAL1")
    assert "is in EUROPE-WEST4, the TPU in US-CENTRAL1" in fault.problem
    assert f"lie {3 / 1024:.2g} GiB" in fault.problem
    assert "less than 0.01 USD each time" in fault.problem
    assert "0.02 to 0.12 USD per GiB (skyplane" in fault.problem
    assert "https://cloud.google.com/storage/pricing" in fault.problem


@pytest.fixture
def line(env: CloudEnv, bucket: Make) -> str:
    """The line that accepts the traffic with a bucket in Europe."""
    bucket("EUROPE-WEST4")
    return completed(refusal(env), "one pass")


def test_accepted_traffic_stays_on_record(line: str) -> None:
    """A1: with the traffic accepted the run gets a permit, which still says how much it is."""
    assert "for traffic with gs://far-away/images in EUROPE-WEST4 because one pass" in line
    permit = CloudTPUCheckGrantOperator(task_id="task", conf={**CONF, "allow_paid_reason": line}).execute(context())
    assert permit["paid_reason"] == line
    assert "each pass over them counts again" in permit["reasons"][0]


def test_accepted_traffic_buys_no_tpu(line: str) -> None:
    """A line that accepts the traffic does not accept a TPU that the grant does not cover."""
    conf = {**CONF, "zone": "us-central1-b", "allow_paid_reason": line}
    with pytest.raises(GrantViolation, match="not on-demand v2-8 in us-central1-b of local-project"):
        CloudTPUCheckGrantOperator(task_id="task", conf=conf).execute(context())


async def test_accepted_traffic_is_in_the_ledger(env: CloudEnv, line: str) -> None:
    """A1: the record of the TPU names the bucket elsewhere, its place and the bytes of one pass."""
    conf = {**CONF, "allow_paid_reason": line}
    order = RunContext(KEY, conf, Connections()).request.order()
    async with env.client() as client:
        await env.provisioner(client, order, env.lease()).ensure()
    (event,) = env.ledger.events(KEY)
    assert isinstance(event, Opened)
    assert (event.paid_reason, event.allowance) == (line, "5 on-demand v2-8 devices in us-central1-f")
    assert event.transfers == (Transfer(FAR, "EUROPE-WEST4", outward=False, size=3 * MIB),)


HIDDEN = [
    {"arguments": f"--data={FAR} --steps 9"},
    {"arguments": f"--pattern '{FAR}/*.tfrecord'"},
    {"environment": f"STEPS=9\nVALIDATION=gs://{BUCKET}/v,{FAR}"},
]


@pytest.mark.parametrize("form", HIDDEN)
def test_arguments_and_environment_are_looked_at(env: CloudEnv, bucket: Make, form: dict[str, str]) -> None:
    """A1: a bucket elsewhere is refused wherever the form names it."""
    bucket("EUROPE-WEST4")
    assert [fault.value for fault in refusal(env, data_uri="", **form).faults] == [FAR]


@pytest.mark.parametrize("form", HIDDEN)
async def test_arguments_and_environment_are_in_the_ledger(env: CloudEnv, line: str, form: dict[str, str]) -> None:
    """A1: the record of the TPU names every bucket elsewhere, wherever the form has it."""
    conf = {**CONF, "data_uri": "", **form, "allow_paid_reason": line}
    order = RunContext(KEY, conf, Connections()).request.order()
    async with env.client() as client:
        await env.provisioner(client, order, env.lease()).ensure()
    (event,) = env.ledger.events(KEY)
    assert isinstance(event, Opened)
    assert event.transfers == (Transfer(FAR, "EUROPE-WEST4", outward=False, size=3 * MIB),)


def test_the_champion_is_looked_at(env: CloudEnv, bucket: Make) -> None:
    """A1: a run that competes reads the model in use on the TPU, so that model's bucket counts too."""
    bucket("EUROPE-WEST4")
    ModelStore(env.storage, ROOT, "digits").replace(
        lambda _: Champion("v1", FAR, "2026-11-01T00:00:00+00:00", "it was the first")
    )
    assert [fault.value for fault in refusal(env, data_uri="", model="digits").faults] == [FAR]


def test_a_single_object_is_measured(env: CloudEnv, bucket: Make) -> None:
    """A1: an archive is one object, and the refusal says its size."""
    bucket("EUROPE-WEST4")
    assert f"lie {1 / 1024:.2g} GiB" in str(refusal(env, data_uri=f"{FAR}/1.tfrecord"))


def test_very_many_objects_are_not_all_counted(env: CloudEnv, bucket: Make) -> None:
    """A1: a listing that would take minutes ends early, and the amount is a lower bound."""
    bucket("EUROPE-WEST4")
    assert env.storage.facts.amount(FAR, limit=2) == StoredSize(2 * MIB, complete=False)
    assert env.storage.facts.amount(FAR) == StoredSize(3 * MIB)
    assert env.storage.facts.amount("gs://far-away") == StoredSize(4 * MIB)


def test_an_amount_that_may_not_be_listed_is_unknown(env: CloudEnv, bucket: Make) -> None:
    """A1: where objects may not be listed the amount is unknown, not nothing, and the run is refused all the same."""
    bucket("EUROPE-WEST4")
    env.cloud.add_fault("gcs.request", {"op": "objects.list", "bucket": "far-away"}, times=9, action="403")
    assert "How much lies below this URI is unknown" in str(refusal(env))


@pytest.mark.parametrize("location", ["US", "NAM4"])
def test_a_bucket_of_several_regions(env: CloudEnv, bucket: Make, location: str) -> None:
    """A2: a multi-region or a pair of regions that has the TPU's own in it is not beside the TPU."""
    bucket(location)
    assert isinstance(refusal(env), GrantViolation)


@pytest.mark.parametrize("place", ["data_uri", "artifacts_uri"])
def test_a_partners_bucket(env: CloudEnv, bucket: Make, place: str) -> None:
    """A2: every URI of the form is looked at; a bucket whose metadata are refused is unknown, never taken for near."""
    bucket("EUROPE-WEST4")
    fault = {"match": {"op": "buckets.get", "bucket": "far-away"}, "params": {"action": "403"}}
    env.cloud.cloud.faults.add({"point": "gcs.request", "times": 9, **fault})
    error = refusal(env, **{"data_uri": "", place: FAR})
    assert isinstance(error, GrantUnknown)
    assert [(fault.value, fault.nearest) for fault in error.faults] == [(FAR, "US-CENTRAL1")]
