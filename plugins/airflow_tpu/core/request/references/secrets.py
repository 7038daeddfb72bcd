# SPDX-License-Identifier: Apache-2.0
"""Secrets of a script: the form names the Airflow connections and Variables that hold them, never a value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_tpu.core.catalogue.catalogue import nearest
from airflow_tpu.core.request.environment import check_name, looks_secret
from airflow_tpu.core.request.fields import Invalid, plain

CONNECTION_FIELDS = ("password", "login", "host", "schema", "port")
EXTRA = "extra."
VARIABLE = "variable:"

# Airflow's own rule for the id of a connection and the key of a Variable, up to 250 characters.
_ID = re.compile(r"[\w.-]{1,250}")
_HINT = (
    "name where the secret is, as CONNECTION.password, CONNECTION.extra.KEY or variable:NAME; "
    "the secret itself must not stand here"
)


@dataclass(frozen=True)
class SecretReference:
    """Where a secret is.

    :param name: id of a connection, or key of a Variable.
    :param field: of the connection, ``extra.KEY`` for a key of its extra; empty for a Variable.
    """

    name: str
    field: str = ""

    def __str__(self) -> str:
        return f"{self.name}.{self.field}" if self.field else f"{VARIABLE}{self.name}"


def secrets(value: Any) -> dict[str, SecretReference]:
    """Read ``NAME = CONNECTION.FIELD`` or ``NAME = variable:KEY``, one a line, or a mapping.

    :raises Invalid: a name or reference of another form; a value is never repeated in the text.
    """
    pairs = list(value.items()) if isinstance(value, Mapping) else list(_pairs(plain(value)))
    found: dict[str, SecretReference] = {}
    for name, text in pairs:
        check_name(name)
        if name in found:
            raise Invalid(f"has {name} twice")
        found[name] = _reference(name, plain(text).strip())
    return found


def _pairs(lines: str) -> Iterable[tuple[str, str]]:
    for number, line in enumerate(lines.splitlines(), start=1):
        if not line.strip():
            continue
        name, equals, text = line.partition("=")
        if not equals:
            raise Invalid(f"line {number} is not NAME = CONNECTION.password or NAME = variable:KEY")
        yield name.strip(), text


def _reference(name: str, text: str) -> SecretReference:
    if looks_secret(text):
        raise Invalid(f"{name}: {_HINT}")
    if text.startswith(VARIABLE):
        key = text.removeprefix(VARIABLE).strip()
        if _ID.fullmatch(key):
            return SecretReference(key)
        raise Invalid(f"{name}: {_HINT}")
    conn_id, extra, key = text.partition(f".{EXTRA}")
    if extra and _ID.fullmatch(conn_id) and _ID.fullmatch(key):
        return SecretReference(conn_id, f"{EXTRA}{key}")
    conn_id, _, field = text.rpartition(".")
    if not _ID.fullmatch(conn_id):
        raise Invalid(f"{name}: {_HINT}")
    if field not in CONNECTION_FIELDS:
        near = nearest(field, CONNECTION_FIELDS) or CONNECTION_FIELDS[0]
        raise Invalid(f"{name}: names no field of a connection; {_HINT}", CONNECTION_FIELDS, near)
    return SecretReference(conn_id, field)
