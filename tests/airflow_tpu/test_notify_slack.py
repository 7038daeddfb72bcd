# SPDX-License-Identifier: Apache-2.0
"""A failed run is reported to Slack, through Slack's own client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest
from airflow.sdk import Context
from slack_sdk.errors import SlackApiError

from airflow_tpu.notify import Recipient
from tests.airflow_tpu.slack_server import API, HOOK, SlackInbox, slack_inbox

RUN = "manual__{{ 7 * 6 }}"
CONTEXT = cast(Context, {"dag": SimpleNamespace(dag_id="nightly"), "run_id": RUN, "reason": "task_failure"})
TOKEN = "xoxb-for-these-tests"


@pytest.fixture
def inbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlackInbox]:
    """A Slack, and the two connections that lead to it."""
    with slack_inbox() as inbox:
        api = {"conn_type": "slack", "password": TOKEN, "extra": {"base_url": f"{inbox.url}/api/"}}
        hook = {"conn_type": "slackwebhook", "password": f"{inbox.url}{HOOK}"}
        monkeypatch.setenv("AIRFLOW_CONN_SLACK_DEFAULT", json.dumps(api))
        monkeypatch.setenv("AIRFLOW_CONN_SLACK_HOOK", json.dumps(hook))
        monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example.org")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield inbox


def test_failed_run_is_told_in_a_channel(inbox: SlackInbox) -> None:
    """The message has DAG, run, reason and link, goes to the channel of the option, and braces stay what they are."""
    Recipient("slack_default", "#tpu")(CONTEXT)
    (message,) = inbox.messages
    assert (message["path"], message["token"], message["channel"]) == (API, TOKEN, "#tpu")
    title, text, link = message["text"].split("\n")
    assert title == f"*nightly has failed: {RUN}*"
    assert f"The run {RUN} of nightly has failed (reason: task_failure)" in text
    assert link == "https://airflow.example.org/dags/nightly/runs/manual__%7B%7B%207%20%2A%206%20%7D%7D"


def test_failed_run_is_told_by_a_webhook(inbox: SlackInbox) -> None:
    """A webhook has its channel; the message is the same."""
    Recipient("slack_default", "#tpu")(CONTEXT)
    Recipient("slack_hook")(CONTEXT)
    api, hook = inbox.messages
    assert (hook["path"], hook["token"], hook["text"]) == (HOOK, "", api["text"])


def test_a_refusal_of_slack_is_an_error(inbox: SlackInbox) -> None:
    """A channel that the bot may not write to reaches Airflow, which writes it into the log of the callback."""
    inbox.refusal = "not_in_channel"
    with pytest.raises(SlackApiError, match="not_in_channel"):
        Recipient("slack_default", "#tpu")(CONTEXT)
