# SPDX-License-Identifier: Apache-2.0
"""Which message is sent when a nightly run has failed, and to whom."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.sdk import Context

from airflow_tpu.errors import ConfigError
from airflow_tpu.notify import Recipient, failure_notices, load
from tests.airflow_tpu.mailbox import Mailbox, mail_server

NIGHTLY = Path(__file__).resolve().parents[2] / "dags" / "tpu_nightly_retrain.py"
OPTION = "AIRFLOW__AIRFLOW_TPU__FAILURE_NOTIFIERS"
RUN = "manual__<b>{{ 7 * 6 }}</b>"


def context(dag: Any = None) -> Context:
    """What Airflow hands to the failure callback of a DAG of which it has no task at hand."""
    given = {"dag": dag or SimpleNamespace(dag_id="nightly"), "run_id": RUN, "reason": "task_failure"}
    return cast(Context, given)


@pytest.fixture
def mailbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mailbox]:
    """A mail server, and the connection that leads to it."""
    with mail_server() as box:
        extra = {"disable_ssl": True, "disable_tls": True, "from_email": "airflow@example.org", "retry_limit": 0}
        connection = {"conn_type": "smtp", "host": "127.0.0.1", "port": box.port, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", json.dumps(connection))
        yield box


def test_failed_night_is_told_by_mail(mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """The DAG's own callback sends run, reason and link; braces and brackets of a run id stay what they are."""
    from airflow.dag_processing.dagbag import DagBag

    monkeypatch.setenv(OPTION, "smtp_default:team@example.org")
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example.org/")
    dag = DagBag(str(NIGHTLY)).dags["tpu_nightly_retrain"]
    (tell,) = cast(list[Callable[[Context], None]], dag.on_failure_callback)
    tell(context(dag))
    (mail,) = mailbox.mails
    assert (mail["To"], mail["From"]) == ("team@example.org", "airflow@example.org")
    assert mail["Subject"] == f"tpu_nightly_retrain has failed: {RUN}"
    body = mail.get_body()
    assert body is not None
    text = body.get_content()
    assert "The run manual__&lt;b&gt;{{ 7 * 6 }}&lt;/b&gt; of tpu_nightly_retrain has failed" in text
    assert "(reason: task_failure)" in text
    link = "https://airflow.example.org/dags/tpu_nightly_retrain/runs/manual__%3Cb%3E%7B%7B%207%20%2A%206%20%7D%7D%3C%2Fb%3E"
    assert f'<a href="{link}">' in text


def test_nobody_is_told_unless_somebody_is_named() -> None:
    """Without the option a DAG has no callback at all."""
    assert failure_notices() == []


def test_option_names_connections_and_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """One callback an entry, so that an address that fails does not keep the others from being notified."""
    monkeypatch.setenv(OPTION, "smtp_default:a@example.org, slack_default : #tpu,slack_hook,")
    expected = [
        Recipient("smtp_default", "a@example.org"),
        Recipient("slack_default", "#tpu"),
        Recipient("slack_hook"),
    ]
    assert failure_notices() == expected


def test_entry_without_connection_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address alone is noticed when the DAG is parsed, not in the night in which it is needed."""
    monkeypatch.setenv(OPTION, ":a@example.org")
    with pytest.raises(ConfigError, match=r"failure_notifiers.*connection:target"):
        failure_notices()


@pytest.mark.parametrize(
    ("connection", "words"),
    [
        (None, "the connection somebody does not exist; create it, or remove it from failure_notifiers"),
        ("http://example.org", "somebody is of type http; give failure_notifiers one of type smtp or slack"),
    ],
    ids=["missing", "wrong type"],
)
def test_unusable_connection_is_said(
    connection: str | None, words: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A notifier that cannot work says so in the log, and the callback ends well."""
    if connection is not None:
        monkeypatch.setenv("AIRFLOW_CONN_SOMEBODY", connection)
    Recipient("somebody", "a@example.org")(context())
    assert words in caplog.text


def test_missing_provider_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """The package to install is in the log."""
    assert load("airflow.providers.nosuch.notifications.nosuch:Notifier") is None
    assert "pip install apache-airflow-providers-nosuch" in caplog.text


def test_silent_mail_server_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes wrong on the way reaches Airflow, which writes it into the log of the callback."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        extra = {"disable_ssl": True, "disable_tls": True, "from_email": "airflow@example.org", "retry_limit": 0}
        connection = {"conn_type": "smtp", "host": "127.0.0.1", "port": port, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", json.dumps(connection))
        with pytest.raises(ConnectionRefusedError):
            Recipient("smtp_default", "a@example.org")(context())
