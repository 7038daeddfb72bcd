"""Who is told when a run has failed or the grant ends: by e-mail or Slack, through connections that Airflow has.

Parsing a DAG file imports neither provider; they are looked for when there is something to tell.
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
class News:
    """What has happened, in two lengths.

    :param subject: one line.
    :param text: what happened, in plain sentences.
    :param link: page of the run in Airflow, empty if Airflow does not know its own address.
    """

    subject: str
    text: str
    link: str = ""

    @classmethod
    def of(cls, context: Context) -> News:
        """The news of a DAG's failure callback.

        :param context: what Airflow hands to it: DAG, run and reason. Nothing of the form is told.
        """
        dag_id, run_id, address = context["dag"].dag_id, str(context["run_id"]), settings.airflow_address()
        link = f"{address.rstrip('/')}/dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}" if address else ""
        reason = str(context.get("reason") or "unknown")
        text = (
            f"The run {run_id} of {dag_id} has failed (reason: {reason}). Its TPU is deleted by the task delete, and "
            "by the reaper if that one could not; the page TPU usage shows what is alive."
        )
        return cls(f"{dag_id} has failed: {run_id}", text, link)

    @property
    def markdown(self) -> str:
        """For Slack."""
        return f"*{self.subject}*\n{self.text}\n{self.link}".rstrip()

    @property
    def html(self) -> str:
        """For an e-mail."""
        link, text = html.escape(self.link), html.escape(self.text).replace("\n", "<br>")
        return f"<p>{text}</p>" + (f'<p><a href="{link}">{link}</a></p>' if link else "")


@dataclass(frozen=True)
class FailureNotice:
    """A failure callback of a DAG: tells one address, through one connection.

    :param conn_id: connection of type ``smtp``, ``slack`` or ``slackwebhook``; its type says how it is told.
    :param target: e-mail address or Slack channel; a webhook has its own.
    """

    conn_id: str
    target: str = ""

    def __call__(self, context: Context) -> None:
        """Tell of the failure; Airflow writes an error of the mail server or of Slack into its log and goes on."""
        self.tell(News.of(context), context)

    def tell(self, news: News, context: Context) -> None:
        """Tell something; a connection or provider that is missing is said in the log.

        :param context: of Airflow, which a notifier wants to see; nothing of it is told.
        """
        from airflow.sdk import BaseHook
        from airflow.sdk.exceptions import AirflowNotFoundException

        try:
            kind = BaseHook.get_connection(self.conn_id).conn_type
        except AirflowNotFoundException:
            log.warning("nobody is told through %s: there is no such connection", self.conn_id)
            return
        if kind not in _WAYS:
            log.warning("nobody is told through %s: its type is %s, not %s", self.conn_id, kind, ", ".join(_WAYS))
            return
        path, arguments = _WAYS[kind]
        notifier = load(path)
        if notifier is not None:
            # Not called but told to notify: the call would render the text, in which braces are just braces.
            notifier(**arguments(self, news)).notify(context)


def failure_notices() -> list[Callable[[Context], None]]:
    """Callbacks for ``on_failure_callback`` of a DAG, as ``[airflow_tpu] failure_notifiers`` names them.

    :raises ConfigError: an entry is not ``connection`` or ``connection:target``.
    """
    return list(addressees())


def addressees() -> list[FailureNotice]:
    """Everybody whom ``[airflow_tpu] failure_notifiers`` names.

    :raises ConfigError: an entry is not ``connection`` or ``connection:target``.
    """
    return [_notice(entry) for entry in settings.failure_notifiers()]


def load(path: str) -> Callable[..., Any] | None:
    """A notifier's class.

    :param path: ``module:class``.
    :return: None if its provider is not installed, which is said.
    """
    module, _, name = path.partition(":")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        package = "-".join(["apache", *module.split(".")[:3]])
        log.warning("nobody is told: %s; pip install %s", error, package)
        return None
    return found


def _notice(entry: str) -> FailureNotice:
    conn_id, _, target = (part.strip() for part in entry.partition(":"))
    if not conn_id:
        fault = Fault("failure_notifiers", entry, "must be connection or connection:target", ("smtp_default:me@a.org",))
        raise ConfigError([fault], "section airflow_tpu of the configuration")
    return FailureNotice(conn_id, target)


def _by_mail(notice: FailureNotice, news: News) -> dict[str, Any]:
    return {
        "smtp_conn_id": notice.conn_id,
        "to": notice.target,
        "subject": news.subject,
        "html_content": news.html,
    }


def _by_slack(notice: FailureNotice, news: News) -> dict[str, Any]:
    return {"slack_conn_id": notice.conn_id, "channel": notice.target, "text": news.markdown}


def _by_webhook(notice: FailureNotice, news: News) -> dict[str, Any]:
    return {"slack_webhook_conn_id": notice.conn_id, "text": news.markdown}


_WAYS: dict[str, tuple[str, Callable[[FailureNotice, News], dict[str, Any]]]] = {
    "smtp": ("airflow.providers.smtp.notifications.smtp:SmtpNotifier", _by_mail),
    "slack": ("airflow.providers.slack.notifications.slack:SlackNotifier", _by_slack),
    "slackwebhook": ("airflow.providers.slack.notifications.slack_webhook:SlackWebhookNotifier", _by_webhook),
}
