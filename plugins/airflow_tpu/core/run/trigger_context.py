# SPDX-License-Identifier: Apache-2.0
"""What a trigger carries (whose TPU, which connections, until when; never a secret), and the event it hands back."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from inspect import signature
from typing import Any

from airflow_tpu import errors
from airflow_tpu.core import json_form
from airflow_tpu.core.tpu.labels import RunKey


@dataclass(frozen=True)
class TriggerContext:
    """Identity, connections and absolute times of a wait; a restarted trigger keeps them.

    :param key: whose TPU.
    :param token: the attempt's token; ``on_kill`` deletes only what carries it.
    :param gcp_conn_id: connection for the Cloud TPU API.
    :param ssh_conn_id: connection with user and private key.
    :param impersonation_chain: service account to impersonate, empty for none.
    :param poll: seconds between two looks.
    :param until: epoch at which the wait is given up.
    :param event_after: epoch before which no event may fire.
    :param since: epoch at which the wait began, 0 for when the trigger did.
    :param closes: epoch by which a TPU has to be READY for the run to wait on, 0 for no such limit.
    """

    key: RunKey
    token: str
    gcp_conn_id: str
    ssh_conn_id: str
    impersonation_chain: str
    poll: float
    until: float
    event_after: float = 0.0
    since: float = 0.0
    closes: float = 0.0

    @property
    def deadline(self) -> dt.datetime:
        """``until`` as an aware instant."""
        return dt.datetime.fromtimestamp(self.until, dt.UTC)

    @property
    def began(self) -> dt.datetime | None:
        """``since`` as an aware instant."""
        return dt.datetime.fromtimestamp(self.since, dt.UTC) if self.since else None

    @property
    def closing(self) -> dt.datetime | None:
        """``closes`` as an aware instant."""
        return dt.datetime.fromtimestamp(self.closes, dt.UTC) if self.closes else None


TRIGGER_CONTEXT_FORM = json_form.StoredForm("trigger context", TriggerContext)
"""The trigger's first argument."""


BEHIND = "behind"
"""Status of the event with which a trigger gives a log to a worker, which writes it faster."""


def error_event(error: errors.TPUError) -> dict[str, Any]:
    """An error as an event, with all it was made of: the instant of a loss, the faults, the consequence."""
    details = {name: _plain(getattr(error, name)) for name in signature(type(error)).parameters}
    return {"status": "error", "error": type(error).__name__, "details": details}


def raise_for(event: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return a good event; raise the error of a bad one as it was.

    :param event: what the trigger yielded.
    :raises TPUError: the leaf that the event names.
    """
    if event is None:
        raise errors.TransientError("the trigger ended without an event; the task re-attaches on its next try")
    if event["status"] != "error":
        return event
    kind = getattr(errors, event["error"])
    details = dict(event["details"])
    if "faults" in details:
        details["faults"] = [_fault(fault) for fault in details["faults"]]
    if details.get("at"):
        details["at"] = dt.datetime.fromisoformat(details["at"])
    raise kind(**details)


def _fault(data: Mapping[str, Any]) -> errors.Fault:
    return errors.Fault(**{**data, "allowed": tuple(data["allowed"])})


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [asdict(fault) | {"value": _shown(fault.value)} for fault in value]
    return value.isoformat() if isinstance(value, dt.datetime) else value


def _shown(value: object) -> object:
    return value if isinstance(value, str | int | float | None) else str(value)
