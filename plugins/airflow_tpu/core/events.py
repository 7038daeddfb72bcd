"""What a trigger hands back to its task: plain JSON, errors included."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from airflow_tpu import errors


def error_event(error: errors.TPUError) -> dict[str, Any]:
    """An error as an event; a loss keeps the instant at which it was seen, however late the task goes on."""
    details: dict[str, Any] = {}
    if isinstance(error, errors.RunFailed):
        details = {"exit_code": error.exit_code, "tail": error.tail}
    if isinstance(error, errors.TPULost) and error.at is not None:
        details = {"at": error.at.isoformat()}
    return {"status": "error", "error": type(error).__name__, "message": str(error), **details}


def raise_for(event: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Hand a good event through; raise the error of a bad one as it was.

    :param event: what the trigger yielded.
    :raises TPUError: the leaf that the event names.
    """
    if event is None:
        raise errors.TransientError("the trigger ended without an event; the task re-attaches on its next try")
    if event["status"] != "error":
        return event
    kind = getattr(errors, event["error"])
    if issubclass(kind, errors.ConfigError):
        raise kind([errors.Fault("trigger", event["error"], event["message"])])
    if issubclass(kind, errors.TPULost):
        at = event.get("at")
        raise kind(event["message"], dt.datetime.fromisoformat(at) if at else None)
    raise kind(event["message"])
