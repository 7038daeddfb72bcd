# SPDX-License-Identifier: Apache-2.0
"""The Admin Activity log: creates and deletes as Cloud Audit Logs keep them, one JSON object a line.

Google writes one entry when a call has been accepted, marked as the first of its operation, and one when the operation
has ended, marked as the last. A refused call is one entry with a status. Reads are not in this log. Nor are the deletes
that Google does by itself, after a preemption: those are system events.
Format: https://cloud.google.com/logging/docs/audit/understanding-audit-logs
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from google.rpc import code_pb2

from localcloud.clock import Clock
from localcloud.rules.errors import CloudError
from localcloud.tpu_state.operations import Operation

FILE = "audit.jsonl"
_METHODS = frozenset(
    {"Tpu/CreateNode", "Tpu/DeleteNode", "Tpu/CreateQueuedResource", "Tpu/DeleteQueuedResource"},
)
_SERVICE = "tpu.googleapis.com"


class ActivityLog:
    """Appends entries to a file.

    :param path: the file; what an earlier cloud of the same directory wrote stays.
    :param project_id: whose log it is.
    :param clock: gives the times.
    """

    def __init__(self, path: Path, project_id: str, clock: Clock) -> None:
        self._path = path
        self._project_id = project_id
        self._clock = clock
        self._written = 0

    def accepted(self, key: str, resource: str, operation: Operation) -> None:
        """Log a call that has begun an operation, and later the end of that operation.

        :param key: ``Service/Method``.
        :param resource: full name of what it is about.
        :param operation: what the call has begun.
        """
        if key not in _METHODS:
            return
        self._write(key, resource, {"id": operation.name, "producer": _SERVICE, "first": True})
        last = {"id": operation.name, "producer": _SERVICE, "last": True}
        operation.when_done(lambda: self._write(key, resource, last, _status(operation)))

    def refused(self, key: str, resource: str, error: CloudError) -> None:
        """Log a call that was answered with an error.

        :param key: ``Service/Method``.
        :param resource: full name of what it is about.
        :param error: the answer.
        """
        if key in _METHODS:
            self._write(key, resource, None, {"code": int(error.code), "message": error.message})

    def _write(
        self, key: str, resource: str, operation: dict[str, Any] | None, status: dict[str, Any] | None = None
    ) -> None:
        now = self._clock.now().isoformat().replace("+00:00", "Z")
        self._written += 1
        entry = {
            "insertId": f"{now}-{self._written}",
            "logName": f"projects/{self._project_id}/logs/cloudaudit.googleapis.com%2Factivity",
            "timestamp": now,
            "receiveTimestamp": now,
            "severity": "ERROR" if status else "NOTICE",
            "resource": {
                "type": "audited_resource",
                "labels": {"service": _SERVICE, "method": _method(key), "project_id": self._project_id},
            },
            "protoPayload": {
                "@type": "type.googleapis.com/google.cloud.audit.AuditLog",
                "serviceName": _SERVICE,
                "methodName": _method(key),
                "resourceName": resource,
                "authenticationInfo": {"principalEmail": "anonymous@localcloud.invalid"},
                **({"status": status} if status else {}),
            },
            **({"operation": operation} if operation else {}),
        }
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


def entries(state_dir: Path) -> list[dict[str, Any]]:
    """Return every entry of the clouds that ran in a state directory, oldest first; the last one may still run."""
    path = state_dir / FILE
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    # A line without its end is still being written.
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _method(key: str) -> str:
    return f"google.cloud.tpu.v2.{key.replace('/', '.')}"


def _status(operation: Operation) -> dict[str, Any] | None:
    error = operation.message.error
    return None if error.code == code_pb2.OK else {"code": int(error.code), "message": str(error.message)}
