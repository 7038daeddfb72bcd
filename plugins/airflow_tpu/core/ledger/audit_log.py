# SPDX-License-Identifier: Apache-2.0
"""Creates and deletes of TPUs as Cloud Audit Logs (*Admin Activity*) record them.

The log is on in every project, free, kept for 400 days, and cannot be switched off: the one record of who created
what that does not come from us. Format: https://cloud.google.com/logging/docs/audit/understanding-audit-logs
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow_tpu.core.json_form import instant_from_json
from airflow_tpu.core.tpu.resource_name import ResourceName
from airflow_tpu.errors import ConfigError, Fault

# Any version of the API: gcloud's alpha track calls v2alpha1, older tools v1.
_METHOD = re.compile(r"google\.cloud\.tpu\.v[0-9a-z]+\.Tpu\.(Create|Delete)(Node|QueuedResource)")
_COLLECTIONS = {"Node": "nodes", "QueuedResource": "queuedResources"}
_REQUEST_IDS = {"Node": ("nodeId", "node_id"), "QueuedResource": ("queuedResourceId", "queued_resource_id")}


@dataclass(frozen=True)
class AuditEntry:
    """One line of the log.

    :param at: when it was written.
    :param name: full name of the node or queued resource.
    :param is_create: a create; else a delete.
    :param is_last: the end of the operation, not its beginning.
    :param error: why the call or its operation failed, empty if it did not.
    :param operation: name of the operation, empty for a call that was refused.
    :param who: account that called.
    """

    at: datetime
    name: ResourceName
    is_create: bool
    is_last: bool
    error: str
    operation: str
    who: str


def read_entries(text: str) -> list[AuditEntry]:
    """The creates and deletes of an export; entries about anything else are left out.

    :param text: a JSON list, as ``gcloud logging read --format=json`` prints it, or one JSON object a line, as a log
        sink writes it.
    :raises ConfigError: it is neither, or an entry lacks what every entry has.
    """
    return sorted(
        (entry for data in _objects(text) if (entry := _entry(data)) is not None),
        key=lambda entry: (entry.at, entry.is_last, entry.name),
    )


def _objects(text: str) -> Iterable[Mapping[str, Any]]:
    try:
        whole = text.lstrip()
        found = (
            json.loads(whole) if whole.startswith("[") else [json.loads(line) for line in whole.splitlines() if line]
        )
    except json.JSONDecodeError as error:
        raise _damaged(text, f"is neither a JSON list nor JSON lines: {error}") from error
    wrong = next((data for data in found if not isinstance(data, Mapping)), None)
    if wrong is not None:
        raise _damaged(wrong, "is no entry of a log")
    return found


def _entry(data: Mapping[str, Any]) -> AuditEntry | None:
    payload = data.get("protoPayload")
    method = _METHOD.fullmatch(str(payload.get("methodName", ""))) if isinstance(payload, Mapping) else None
    if method is None or not isinstance(payload, Mapping):
        return None
    try:
        operation = data.get("operation") or {}
        return AuditEntry(
            at=_instant(data["timestamp"]),
            name=_name(payload, method[2]),
            is_create=method[1] == "Create",
            is_last=bool(operation.get("last")) and not operation.get("first"),
            error=_error(payload.get("status")),
            operation=str(operation.get("id", "")),
            who=str((payload.get("authenticationInfo") or {}).get("principalEmail", "")),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _damaged(data, f"is a damaged entry ({error!r})") from error


def _instant(text: str) -> datetime:
    at = instant_from_json(text.replace("Z", "+00:00"))
    if at is None:
        raise ValueError("no timestamp")
    return at


def _name(payload: Mapping[str, Any], kind: str) -> ResourceName:
    """Full name. For a create some versions of the log give the parent, and the id is in the request."""
    name = str(payload["resourceName"])
    collection = _COLLECTIONS[kind]
    if f"/{collection}/" in name:
        return ResourceName.parse(name)
    request = payload["request"]
    identifier = next((request[field] for field in _REQUEST_IDS[kind] if field in request), "")
    return ResourceName.parse(f"{name}/{collection}/{identifier}")


def _error(status: Mapping[str, Any] | None) -> str:
    if not status or not status.get("code"):
        return ""
    return f"{status.get('message') or 'no message'} (code {status['code']})"


def _damaged(value: object, problem: str) -> ConfigError:
    return ConfigError([Fault("audit log", str(value)[:80], problem)])
