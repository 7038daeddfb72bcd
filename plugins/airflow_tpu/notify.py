# SPDX-License-Identifier: Apache-2.0
"""Send a message when a run has failed or the grant ends: by e-mail or Slack, through connections of Airflow.

Parsing a DAG file imports neither provider; they are imported when there is something to send.
"""

from __future__ import annotations

import html
import importlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow_tpu import settings
from airflow_tpu.errors import ConfigError, Fault

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Message:
    """What has happened, in two lengths.

    :param subject: one line.
    :param text: what happened, in plain sentences.
    :param link: page of the run in Airflow, empty if Airflow does not know its own address.
    """

    subject: str
    text: str
    link: str = ""

    @classmethod
    def of_failure(cls, context: Context) -> Message:
        """Return the message of a DAG's failure callback.

        :param context: of the callback: DAG, run and reason. Nothing of the form is sent.
        """
        dag_id, run_id, address = context["dag"].dag_id, str(context["run_id"]), settings.airflow_address()
        link = f"{address.rstrip('/')}/dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}" if address else ""
        reason = str(context.get("reason") or "unknown")
        text = (
            f"The run {run_id} of {dag_id} has failed (reason: {reason}). The task delete deletes its TPU, and the "
            "reaper does if that fails; the page TPU usage shows what is alive."
        )
        return cls(f"{dag_id} has failed: {run_id}", text, link)

    @property
    def markdown(self) -> str:
        """The text for Slack."""
        return f"*{self.subject}*\n{self.text}\n{self.link}".rstrip()

    @property
    def html(self) -> str:
        """The text for an e-mail."""
        link, text = html.escape(self.link), html.escape(self.text).replace("\n", "<br>")
        return f"<p>{text}</p>" + (f'<p><a href="{link}">{link}</a></p>' if link else "")


@dataclass(frozen=True)
class Recipient:
    """One address, reached through one connection; called, it is a failure callback of a DAG.

    :param conn_id: connection of type ``smtp``, ``slack`` or ``slackwebhook``; the type decides how a message is sent.
    :param target: e-mail address or Slack channel; a webhook has its own.
    """

    conn_id: str
    target: str = ""

    def __call__(self, context: Context) -> None:
        """Send the failure; Airflow logs an error of the mail server or of Slack and continues."""
        self.send(Message.of_failure(context), context)

    def send(self, message: Message, context: Context) -> None:
        """Send a message; a connection or provider that is missing is a warning in the log.

        :param context: of Airflow, which its notifiers require; nothing of it is sent.
        """
        from airflow.sdk import BaseHook
        from airflow.sdk.exceptions import AirflowNotFoundException

        try:
            kind = BaseHook.get_connection(self.conn_id).conn_type
        except AirflowNotFoundException:
            log.warning(
                "not notified: the connection %s does not exist; create it, or remove it from failure_notifiers",
                self.conn_id,
            )
            return
        if kind not in _WAYS:
            log.warning(
                "not notified: the connection %s is of type %s; give failure_notifiers one of type %s",
                self.conn_id,
                kind,
                " or ".join(_WAYS),
            )
            return
        path, arguments = _WAYS[kind]
        notifier = load(path)
        if notifier is not None:
            # Calling the notifier would render the text, in which braces are just braces.
            notifier(**arguments(self, message)).notify(context)


def failure_notices() -> list[Callable[[Context], None]]:
    """Return the callbacks for ``on_failure_callback`` of a DAG that ``[airflow_tpu] failure_notifiers`` names.

    :raises ConfigError: an entry is not ``connection`` or ``connection:target``.
    """
    return list(recipients())


def recipients() -> list[Recipient]:
    """Return the recipients that ``[airflow_tpu] failure_notifiers`` names.

    :raises ConfigError: an entry is not ``connection`` or ``connection:target``.
    """
    return [_recipient(entry) for entry in settings.failure_notifiers()]


def load(path: str) -> Callable[..., Any] | None:
    """Return the class of a notifier.

    :param path: ``module:class``.
    :return: None if its provider is not installed, which is a warning in the log.
    """
    module, _, name = path.partition(":")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        package = "-".join(["apache", *module.split(".")[:3]])
        log.warning("not notified: %s; pip install %s", error, package)
        return None
    return found


def _recipient(entry: str) -> Recipient:
    conn_id, _, target = (part.strip() for part in entry.partition(":"))
    if not conn_id:
        fault = Fault("failure_notifiers", entry, "must be connection or connection:target", ("smtp_default:me@a.org",))
        raise ConfigError([fault], "section airflow_tpu of the configuration")
    return Recipient(conn_id, target)


def _by_mail(recipient: Recipient, message: Message) -> dict[str, Any]:
    return {
        "smtp_conn_id": recipient.conn_id,
        "to": recipient.target,
        "subject": message.subject,
        "html_content": message.html,
    }


def _by_slack(recipient: Recipient, message: Message) -> dict[str, Any]:
    return {"slack_conn_id": recipient.conn_id, "channel": recipient.target, "text": message.markdown}


def _by_webhook(recipient: Recipient, message: Message) -> dict[str, Any]:
    return {"slack_webhook_conn_id": recipient.conn_id, "text": message.markdown}


_WAYS: dict[str, tuple[str, Callable[[Recipient, Message], dict[str, Any]]]] = {
    "smtp": ("airflow.providers.smtp.notifications.smtp:SmtpNotifier", _by_mail),
    "slack": ("airflow.providers.slack.notifications.slack:SlackNotifier", _by_slack),
    "slackwebhook": ("airflow.providers.slack.notifications.slack_webhook:SlackWebhookNotifier", _by_webhook),
}
