# SPDX-License-Identifier: Apache-2.0
"""Every ``gs://`` URI of a run is looked at before anything is created; the field that is wrong is the one named."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from airflow_tpu import settings
from airflow_tpu.errors import ConfigError, Fault, GrantViolation
from airflow_tpu.lifecycle.connections import Connections
from airflow_tpu.lifecycle.lease import check_grant
from airflow_tpu.lifecycle.run_context import RunContext
from tests.airflow_tpu.cloud_env import BUCKET, FORM, KEY, CloudEnv

CONF = {**FORM, "tier": "on-demand"}
NO_BUCKET = "names a bucket that does not exist"
NO_OBJECT = "names no object and no folder that has any"


@pytest.fixture
def data(env: CloudEnv) -> CloudEnv:
    """A bucket with a data set, and one whose readers pay."""
    env.storage.upload(bucket_name=BUCKET, object_name="days/2026-11-28/a.tfrecord", data=b"x")
    env.cloud.call(lambda: env.cloud.cloud.storage.create_bucket("payers", "US-CENTRAL1"))
    bucket = env.storage.get_conn().bucket("payers")
    bucket.requester_pays = True
    bucket.patch()
    return env


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder ``repo`` with a script, below an include directory with what ours has."""
    ours, train = settings.include_dir(), tmp_path / "include" / "train"
    (train / "repo" / "configs").mkdir(parents=True)
    for name in ("remote", "grants", "catalogue"):
        (tmp_path / "include" / name).symlink_to(ours / name)
    (train / "repo" / "train.py").write_text("DEFAULT = 'gs://nobody-here/x'\n")
    monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__INCLUDE_DIR", str(tmp_path / "include"))
    return train / "repo"


def faults(**form: str) -> list[tuple[str, object, str]]:
    """What the first task says of a form."""
    conf = {**CONF, **form}
    with pytest.raises(ConfigError) as caught:
        check_grant(RunContext(KEY, conf, Connections()))
    return [(fault.field, fault.value, fault.problem) for fault in caught.value.faults]


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ({"artifacts_uri": "gs://typo/runs"}, ("artifacts_uri", "gs://typo/runs", NO_BUCKET)),
        ({"data_uri": f"gs://{BUCKET}/dayz"}, ("data_uri", f"gs://{BUCKET}/dayz", NO_OBJECT)),
        ({"arguments": "--log=gs://typo/x"}, ("arguments", "gs://typo/x", NO_BUCKET)),
        (
            {"arguments": f"--data_dir gs://{BUCKET}/days/2026-11-29 --model_dir gs://{BUCKET}/new"},
            ("arguments", f"gs://{BUCKET}/days/2026-11-29", NO_OBJECT),
        ),
        ({"environment": "A=1\nVAL=gs://typo/x"}, ("environment", "gs://typo/x", NO_BUCKET)),
        (
            {"command": f"python hello.py 'gs://{BUCKET}/days/2025-*/x'"},
            ("command", f"gs://{BUCKET}/days/2025-", NO_OBJECT),
        ),
    ],
)
def test_what_is_not_there_is_named_with_its_field(
    data: CloudEnv, form: dict[str, str], expected: tuple[str, str, str]
) -> None:
    """A bucket that does not exist, and data that are not there; a folder that is written may be new."""
    assert faults(**form) == [expected]
    assert data.calls("CreateNode") == data.calls("ListNodes") == []


def test_a_bucket_whose_readers_pay_is_refused_by_its_field(data: CloudEnv) -> None:
    """The other faults of the form are told at once with it."""
    paid, absent = faults(data_uri="gs://payers/x", arguments=f"--vocab=gs://{BUCKET}/vocab.txt")
    assert (paid[0], paid[1]) == ("data_uri", "gs://payers/x")
    assert "Requester Pays" in paid[2]
    assert absent == ("arguments", f"gs://{BUCKET}/vocab.txt", NO_OBJECT)


def test_what_is_there_passes(data: CloudEnv, caplog: pytest.LogCaptureFixture) -> None:
    """Folders, patterns and beginnings of names; of what nobody can tell whether it is read the log speaks."""
    uri = f"gs://{BUCKET}/days/2026-11-28"
    conf = {**CONF, "data_uri": uri, "arguments": f"--data={uri}/*.tfrecord --in {uri}/a. gs://{BUCKET}/perhaps"}
    with caplog.at_level(logging.WARNING):
        check_grant(RunContext(KEY, conf, Connections()))
    assert [record.getMessage() for record in caplog.records if "nothing is there yet" in record.getMessage()] == [
        f"arguments: nothing is there yet at gs://{BUCKET}/perhaps; right if the run writes it, else correct it"
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("base.yaml", "# see gs://nobody-here/y\ndata_dir: gs://typo/x  # or gs://nobody-here/z\nout: {out}\n"),
        ("base.py", '"""Reads gs://nobody-here/y."""\nconfig.data = "gs://typo/x"\nconfig.out = "{out}"\n'),
        ("base.json", '{{"train_data": "gs://typo/x", "out": "{out}"}}\n'),
    ],
)
def test_a_configuration_that_the_command_names_counts(data: CloudEnv, project: Path, name: str, text: str) -> None:
    """Its comments do not, nor does the script, which may have defaults that nobody uses."""
    (project / "configs" / name).write_text(text.format(out=f"gs://{BUCKET}/out"))
    command = f"python train.py --config=configs/{name}"
    assert faults(source="repo", command=command) == [(f"command (configs/{name})", "gs://typo/x", NO_BUCKET)]


def test_a_configuration_with_data_elsewhere_is_refused(data: CloudEnv, project: Path) -> None:
    """Traffic between regions is billed wherever the URI stands, and the file is named."""
    data.cloud.call(lambda: data.cloud.cloud.storage.create_bucket("eu-data", "EUROPE-WEST4"))
    data.storage.upload(bucket_name="eu-data", object_name="x/1", data=b"x")
    (project / "configs" / "base.yaml").write_text("data_dir: gs://eu-data/x\n")
    conf = {**CONF, "source": "repo", "script": "train.py", "arguments": "--config configs/base.yaml"}
    with pytest.raises(GrantViolation) as caught:
        check_grant(RunContext(KEY, conf, Connections()))
    (fault,) = caught.value.faults
    assert isinstance(fault, Fault)
    assert (fault.field, fault.value) == ("arguments (configs/base.yaml)", "gs://eu-data/x")
