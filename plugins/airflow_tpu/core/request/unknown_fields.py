# SPDX-License-Identifier: Apache-2.0
"""Say where a name belongs that is no field of a run: the nearest spelling only if it is a slip of the pen."""

from __future__ import annotations

import re
from collections.abc import Iterable

from airflow_tpu.core.request.fields import REDACTED
from airflow_tpu.errors import Fault

_LIKENESS = 0.8
"""As ``difflib.get_close_matches`` measures it: ``dedline_hours`` has 0.96, ``learning_rate`` 0.44 of one field."""

_MEANT = {
    "args": "arguments",
    "bucket": "artifacts_uri",
    "dataset": "data_uri",
    "env": "environment",
    "preemptible": "tier",
    "region": "zone",
    "spot": "tier",
    "subnet": "subnetwork",
    "timeout": "deadline_hours",
    "tpu_type": "accelerator_type",
}
"""What other tools call a field."""

OPERATOR_ARGUMENTS = frozenset(
    {
        "cancel_on_kill",
        "deferrable",
        "depends_on_past",
        "email_on_failure",
        "execution_timeout",
        "executor",
        "executor_config",
        "gcp_conn_id",
        "impersonation_chain",
        "inlets",
        "max_active_tis_per_dag",
        "on_execute_callback",
        "on_failure_callback",
        "on_retry_callback",
        "on_success_callback",
        "outlets",
        "owner",
        "poll_interval",
        "pool",
        "priority_weight",
        "queue",
        "retries",
        "retry_delay",
        "retry_exponential_backoff",
        "session",
        "ssh_conn_id",
        "task_id",
        "trigger_rule",
    }
)
"""Arguments of the operators, Airflow's and ours, that people write among the fields of a run."""

_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
_OPTION = re.compile(r"-{0,2}(?P<name>[A-Za-z][\w-]*)")


def unknown_field(name: object, fields: Iterable[str]) -> Fault:
    """Return the fault of a name that is no field, with the place it belongs in. No message has its value.

    :param name: as given.
    :param fields: the fields there are.
    """
    known, text = tuple(fields), str(name)[:100]
    near = _near(text, known)
    if near is not None:
        return Fault(text, REDACTED, "no such field", known, near)
    place = _place(text)
    return Fault(text, REDACTED, f"no such field; {place}" if place else "no such field", () if place else known)


def _near(text: str, fields: tuple[str, ...]) -> str | None:
    import difflib  # only a mistake needs it

    said = re.sub(r"[\s-]+", "_", text.strip().lower())
    meant = _MEANT.get(said)
    if meant in fields:
        return meant
    begun = [field for field in fields if field.startswith(f"{said}_")]
    return next(iter([*difflib.get_close_matches(said, fields, n=1, cutoff=_LIKENESS), *begun]), None)


def _place(text: str) -> str:
    if text in OPERATOR_ARGUMENTS:
        return f"an argument of the operator, beside conf: tpu_session(conf=..., {text}=...)"
    if text in ("project", "project_id"):
        return "the connection names the project: tpu_session(conf=..., gcp_conn_id=...)"
    if _VARIABLE.fullmatch(text):
        return f"a variable of the script belongs in the field environment: {text}=..."
    option = _OPTION.fullmatch(text)
    return f"an option of the script belongs in the field arguments: --{option['name']}=..." if option else ""
