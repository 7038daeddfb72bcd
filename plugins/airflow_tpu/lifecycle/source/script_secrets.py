# SPDX-License-Identifier: Apache-2.0
"""Read the secrets of a script from Airflow: when a run is checked, and again for each of its attempts."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from fnmatch import fnmatchcase

from airflow_tpu import settings
from airflow_tpu.clients import airflow_state
from airflow_tpu.core.request.references.secrets import EXTRA, SecretReference
from airflow_tpu.errors import ConfigError, Fault

log = logging.getLogger(__name__)

FIELD = "secrets"

OWN_TYPES = frozenset({"google_cloud_platform", "google_cloud_tpu", "ssh", "git"})
"""Types of connections that are for Airflow alone: the TPU VM has a service account of its own and gets no key."""

MASKED_FROM = 5
"""Characters of the shortest value that is masked in logs, as in Airflow's own masker; shorter ones are in any text."""

LIMIT = 100_000
"""Bytes of all values; Linux takes 128 KiB for one variable (MAX_ARG_STRLEN)."""


def read_secrets(references: Mapping[str, SecretReference]) -> dict[str, str]:
    """Return the values by the variables that a script finds them in; Airflow masks them in its logs from here on.

    :param references: where each is.
    :raises ConfigError: names everything that is missing, empty or not for a script.
    """
    found: dict[str, str] = {}
    faults: list[Fault] = []
    for name, reference in references.items():
        value = _value(name, reference, faults)
        found[name] = value
        if value:
            airflow_state.mask(value)
        if 0 < len(value) < MASKED_FROM:
            log.warning("%s (%s) has fewer than %d characters, so logs do not mask it", name, reference, MASKED_FROM)
    if len("".join(found.values()).encode()) > LIMIT:
        faults.append(Fault(FIELD, ", ".join(found), f"have more than {LIMIT:,} bytes together"))
    if faults:
        raise ConfigError(faults, "the secrets of the script")
    return found


def _value(name: str, reference: SecretReference, faults: list[Fault]) -> str:
    problem, value = _find(reference)
    if not problem and not value:
        problem = "is empty"
    if not problem and "\0" in value:
        problem = "has a NUL character, which no variable can hold"
    if problem:
        faults.append(Fault(FIELD, f"{name} = {reference}", problem))
        return ""
    return value


def _find(reference: SecretReference) -> tuple[str, str]:
    """Return what is wrong with a reference, empty for nothing, and its value."""
    allowed = settings.script_secrets()
    if allowed and not any(fnmatchcase(str(reference), pattern) for pattern in allowed):
        return "is not among those that scripts may get ([airflow_tpu] script_secrets)", ""
    if not reference.field:
        value = airflow_state.variable(reference.name)
        return ("there is no such Variable in Airflow", "") if value is None else ("", str(value))
    connection = airflow_state.find_connection(reference.name)
    if connection is None:
        return "there is no such connection in Airflow", ""
    if connection.conn_type in OWN_TYPES:
        return f"is a connection of type {connection.conn_type}, which is for Airflow alone", ""
    if reference.field.startswith(EXTRA):
        extra = connection.extra_dejson
        key = reference.field.removeprefix(EXTRA)
        if key not in extra:
            return f"its extra has no key {key!r}", ""
        return "", str(extra[key])
    value = getattr(connection, reference.field)
    return "", "" if value is None else str(value)
