# SPDX-License-Identifier: Apache-2.0
"""The tasks of the DAG tpu_grant_watch against the local cloud."""

from __future__ import annotations

import json

import pytest
from airflow.sdk import Asset
from airflow.sdk.execution_time.context import OutletEventAccessors

from airflow_tpu.errors import GrantViolation, TransientError
from airflow_tpu.operators.grant_watch import NOTICE_ASSET, CloudTPUGrantNoticeOperator, CloudTPUGrantWatchOperator
from localcloud.testing import tpu_client
from localcloud.virtual_cloud import spot_node
from tests.airflow_tpu.cloud_env import BUCKET, INCLUDE, CloudEnv, context
from tests.airflow_tpu.mailbox import mail_server

PARENT = "projects/local-project/locations/europe-west4-a"
V2 = spot_node(accelerator_type="v2-8", runtime_version="tpu-vm-tf-2.16.1-pjrt")


def test_the_watch_fails_while_something_is_billed(env: CloudEnv) -> None:
    """Nothing alive: one line per allowance; a TPU in a zone that is not in the grant fails the task by its name."""
    watch = CloudTPUGrantWatchOperator(task_id="watch")
    assert len(watch.execute(context())) == 1 + len(env.grant.allowances)
    tpu_client(env.cloud.endpoints).create_node(parent=PARENT, node_id="stray", node=V2)
    with pytest.raises(GrantViolation, match=r"; it is billed until it is deleted:\n.*stray"):
        watch.execute(context())


def test_a_zone_that_does_not_answer_is_not_taken_for_clean(env: CloudEnv) -> None:
    """Without an answer it is unknown what is billed there, and the next try asks again."""
    env.cloud.add_fault("tpu.zone", {"zone": "us-central1-f"}, times=1000, action="unreachable")
    with pytest.raises(TransientError, match="us-central1-f"):
        CloudTPUGrantWatchOperator(task_id="watch").execute(context())


def test_the_watch_warns_of_a_bucket_that_bills_what_was_deleted(
    env: CloudEnv, capsys: pytest.CaptureFixture[str]
) -> None:
    """Soft delete, retention and versioning are each a warning with the way out, no failure; without them, silence."""
    bucket = env.storage.get_conn().get_bucket(BUCKET)
    watch = CloudTPUGrantWatchOperator(task_id="watch")

    def warned() -> list[str]:
        watch.execute(context())
        return [line for line in capsys.readouterr().out.splitlines() if f"gs://{BUCKET} " in line]

    (fresh,) = warned()
    assert "for 7 days" in fresh
    assert f"gcloud storage buckets update gs://{BUCKET} --clear-soft-delete" in fresh
    bucket.retention_period, bucket.versioning_enabled = 36 * 3600, True
    bucket.patch()
    ways = ("--clear-soft-delete", "--clear-retention-period", "--no-versioning")
    assert [way for line, way in zip(warned(), ways, strict=True) if way in line] == list(ways)
    bucket.soft_delete_policy.retention_duration_seconds = 0
    bucket.retention_period, bucket.versioning_enabled = None, False
    bucket.patch()
    assert warned() == []


def test_the_watch_does_not_guess_settings_that_may_not_be_read(
    env: CloudEnv, capsys: pytest.CaptureFixture[str]
) -> None:
    """Metadata that are refused make a warning, not a clean bill."""
    env.cloud.add_fault("gcs.request", {"method": "GET", "bucket": BUCKET, "object": ""}, action="403")
    CloudTPUGrantWatchOperator(task_id="watch").execute(context())
    assert f"gs://{BUCKET}: its settings may not be read" in capsys.readouterr().out


def end_the_grant(env: CloudEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the grant be one whose term is over."""
    text = (INCLUDE / "grants" / "local.yaml").read_text(encoding="utf-8")
    ended = "\n".join("start: 2020-01-01" if line.startswith("start:") else line for line in text.splitlines())
    env.storage.upload(bucket_name=BUCKET, object_name="grant.yaml", data=ended.replace("days: ", "days: 30 # "))
    monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__GRANT", f"gs://{BUCKET}/grant.yaml")


def test_a_notice_is_given_once(env: CloudEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    """A grant that has ended gives its notice to log, asset event and XCom, and not again the next day."""
    end_the_grant(env, monkeypatch)
    root = f"gs://{BUCKET}/{env.grant.prefix}/models/digits"
    for name in ("champion.json", "versions/1.json", "versions/2.json"):
        env.storage.write_json(f"{root}/{name}", {})
    events = OutletEventAccessors()
    notice = CloudTPUGrantNoticeOperator(task_id="notice")
    told = notice.execute(context(outlet_events=events))
    assert "every TPU is billed" in told
    assert "Models: digits (2 version(s))." in told
    assert events[Asset(NOTICE_ASSET)].extra == {"days": 0, "text": told}
    assert notice.execute(context(outlet_events=OutletEventAccessors())) == ""
    (record,) = env.ledger.names("notices/")
    env.storage.upload(BUCKET, record, data="oops")  # whatever it holds, it says that the notice was given
    assert notice.execute(context(outlet_events=OutletEventAccessors())) == ""


def test_a_notice_goes_by_mail(env: CloudEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    """The targets of the option get the text for the extension once; after a server that refuses, by the next try."""
    end_the_grant(env, monkeypatch)
    monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__FAILURE_NOTIFIERS", "smtp_default:lab@example.org")
    notice = CloudTPUGrantNoticeOperator(task_id="notice")
    with mail_server() as box:
        extra = {"disable_ssl": True, "disable_tls": True, "from_email": "airflow@example.org", "retry_limit": 0}
        connection = {"conn_type": "smtp", "host": "127.0.0.1", "port": box.port, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", json.dumps({**connection, "port": 1}))
        with pytest.raises(ConnectionRefusedError):
            notice.execute(context(outlet_events=OutletEventAccessors()))
        monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", json.dumps(connection))
        for _ in range(2):
            notice.execute(context(outlet_events=OutletEventAccessors()))
    (mail,) = box.mails
    assert mail["To"] == "lab@example.org"
    assert mail["Subject"].startswith("TPU grant of local-project: The grant ended 2020-01-31")
    body = mail.get_body()
    assert body is not None
    assert "For the extension request:<br>" in body.get_content()
