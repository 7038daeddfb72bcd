# SPDX-License-Identifier: Apache-2.0
"""Find the identity of this Airflow, or make it at the first start; and tell the bucket the name that goes with it."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Protocol

from airflow_tpu import settings
from airflow_tpu.clients.airflow_state import AirflowVariables
from airflow_tpu.core.tpu.identity import CANDIDATE, LENGTH, VARIABLE, checked, chosen
from airflow_tpu.errors import TransientError, UnreadableObject

if TYPE_CHECKING:
    from airflow_tpu.lifecycle.run_context import GrantContext
    from airflow_tpu.stores.airflows import AirflowStore

log = logging.getLogger(__name__)

DESCRIPTION = (
    "Whose TPUs, leases and ledger records are: the identity of this Airflow (docs/two-airflows.md). Do not change it."
)


class Variables(Protocol):
    """Where only this Airflow keeps things; the last write of a key counts."""

    def get(self, key: str) -> str | None:
        """Value of a key, None if there is none or if it could not be read."""

    def put(self, key: str, value: str, description: str) -> None:
        """Write a key."""

    def keys(self, prefix: str) -> Collection[str]:
        """The keys that begin so; unlike ``get`` it says whether there is one."""

    def remove(self, key: str) -> None:
        """Remove a key; removing a missing one succeeds."""


def this_airflow(grant: GrantContext) -> str:
    """Identity of the Airflow in which a task runs; the first one that asks makes it.

    :param grant: names the bucket in which a first start is settled.
    :raises ConfigError: the Variable holds something else, or the grant, needed for the first start, cannot be read.
    :raises TransientError: Airflow did not answer.
    """
    return find_or_make(AirflowVariables(), lambda: grant.stores.airflows)


def find_or_make(variables: Variables, airflows: Callable[[], AirflowStore]) -> str:
    """The identity that the Variables hold, or a new one on which all processes of a first start agree.

    :param variables: of this Airflow.
    :param airflows: of the bucket, read for a first start only.
    """
    found = variables.get(VARIABLE)
    return checked(found) if found is not None else _make(variables, airflows())


def _make(variables: Variables, airflows: AirflowStore) -> str:
    """Agree on an identity: Variables alone could not, since the last write counts.

    The candidates are removed only after the identity has been written: who lists them later sees it in the same list.
    """
    own = uuid.uuid4().hex[:LENGTH]
    variables.put(f"{CANDIDATE}{own}", own, DESCRIPTION)
    keys = variables.keys(VARIABLE)
    candidates = [key.removeprefix(CANDIDATE) for key in keys if key.startswith(CANDIDATE)]
    if VARIABLE in keys:
        identity = _there(variables)
    else:
        identity = chosen(candidates, own, airflows.settle)
        variables.put(VARIABLE, identity, DESCRIPTION)
        log.info("this Airflow has the identity %s from now on: Variable %s", identity, VARIABLE)
    for candidate in candidates:
        variables.remove(f"{CANDIDATE}{candidate}")
    return identity


def _there(variables: Variables) -> str:
    found = variables.get(VARIABLE)
    if found is None:
        raise TransientError(f"the Variable {VARIABLE} exists and could not be read; nothing was touched")
    return checked(found)


def introduce(grant: GrantContext, identity: str) -> None:
    """Write the name of this Airflow into the bucket, for the messages of others.

    :param grant: stores.
    :param identity: of this Airflow.
    """
    name, address = settings.airflow_name(), settings.airflow_address()
    try:
        before = grant.stores.airflows.introduce(identity, name, address)
    except UnreadableObject as error:  # a name is for people: no run depends on it
        log.warning("the name of this Airflow is not written down: %s", error)
        return
    if before is not None and (before.name, before.address) != (name, address):
        log.warning(
            "this Airflow was known as %s until now. If that one still runs, this one has a copy of its database: "
            "delete the Variable %s here before another run starts",
            before,
            VARIABLE,
        )
