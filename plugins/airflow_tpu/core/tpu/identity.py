# SPDX-License-Identifier: Apache-2.0
"""The identity of an Airflow: made once, kept where only this Airflow keeps things, and part of all that it owns.

Two Airflows give DAG runs the same ids, and nothing in their configuration has to differ. So each has a random word of
its own. It is in the digest of every run, hence in names, leases, ledger records and reservations, and in a label of
every TPU: what carries another identity, or none, is not ours.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from airflow_tpu.core import json_form
from airflow_tpu.core.tpu.labels import airflow_of, is_managed, store_mark, store_of
from airflow_tpu.errors import ConfigError, Fault

VARIABLE = "airflow_tpu_identity"
"""The Airflow Variable that holds it: the metadata database belongs to one Airflow."""

CANDIDATE = f"{VARIABLE}_candidate_"
"""How the Variables of a first start begin, until one candidate is chosen; one listing shows them and the identity."""

LENGTH = 12
"""Hexadecimal digits: 48 bits, so that the Airflows of a project never meet."""

_FORM = re.compile(rf"[0-9a-f]{{{LENGTH}}}")


def checked(text: object) -> str:
    """The identity that a Variable holds.

    :raises ConfigError: it is not one.
    """
    if isinstance(text, str) and _FORM.fullmatch(text.strip()):
        return text.strip()
    problem = (
        f"is not an identity, {LENGTH} hexadecimal digits: give the Variable the value that it had (the names in the "
        "bucket and the labels of the TPUs show it), or delete it if this Airflow has no run in progress"
    )
    raise ConfigError([Fault(VARIABLE, text, problem)], "the identity of this Airflow")


def chosen(candidates: Iterable[str], own: str, settle: Callable[[str, str], str]) -> str:
    """The one candidate that all processes of a first start choose, whatever each of them has seen.

    Each process adds its own candidate and lists them after that, so of two lists one contains the other. For each
    candidate of its list, in order, a process settles its choice in an object that is written once, and continues with
    what it finds there. The last candidate of the shortest list is in every list; so all leave its object with the same
    choice, and keep it in the objects after it, which no process reaches without passing this one.

    :param candidates: those that this process has seen, its own included.
    :param own: the one that it proposes.
    :param settle: from candidate and choice to the choice that stands there from now on.
    """
    choice = own
    for candidate in sorted(candidates):
        choice = settle(candidate, choice)
    return choice


@dataclass(frozen=True)
class FirstChoice:
    """What a first start has settled on under one candidate.

    :param identity: the choice.
    """

    identity: str


CHOICE_FORM = json_form.StoredForm("choice of an identity", FirstChoice)
"""The object in the bucket."""


@dataclass(frozen=True)
class KnownAirflow:
    """An Airflow as the bucket knows it.

    :param identity: its identity.
    :param name: what people call it, ``[airflow_tpu] airflow_name``; empty if it has no name.
    :param address: its ``[api] base_url``, empty if it has none.
    :param first_seen: when it first took a lease in this bucket.
    """

    identity: str
    name: str
    address: str
    first_seen: dt.datetime

    def __str__(self) -> str:
        known = [f"'{self.name}'" if self.name else "", f"at {self.address}" if self.address else ""]
        return " ".join(["Airflow", *(part for part in known if part), f"({self.identity})"])


KNOWN_AIRFLOW_FORM = json_form.StoredForm("name of an Airflow", KnownAirflow)
"""The object in the bucket."""


@dataclass(frozen=True)
class Airflows:
    """This Airflow, and the others by name.

    :param own: identity of this one, None while it has none: then nothing is its own.
    :param known: the Airflows that the bucket knows, by identity.
    :param root: ``gs://bucket/prefix`` below which this one keeps its leases now, empty while that is unknown.
    """

    own: str | None
    known: Mapping[str, KnownAirflow] = field(default_factory=dict)
    root: str = ""

    def owns(self, labels: Mapping[str, str]) -> bool:
        """Whether a TPU with these labels is of this Airflow; one of unknown origin is not."""
        return self.own is not None and airflow_of(labels) == self.own

    def keeps_lease(self, labels: Mapping[str, str]) -> bool:
        """Whether the lease of a TPU of this Airflow has to be looked for here; not if its grant has moved since."""
        return store_of(labels) in (None, store_mark(self.root))

    def named(self, identity: str) -> str:
        """An Airflow in words."""
        known = self.known.get(identity)
        return str(known) if known is not None else f"an Airflow that this bucket does not know ({identity})"

    def owner(self, labels: Mapping[str, str]) -> str:
        """Whose a TPU with these labels is, in words."""
        if not is_managed(labels):
            return "not made by this package"
        identity = airflow_of(labels)
        return f"of {self.named(identity)}" if identity else "made by this package for an unknown Airflow"
