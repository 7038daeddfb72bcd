# SPDX-License-Identifier: Apache-2.0
"""One row of a grant: so many devices or chips, of one tier, in one zone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_tpu.core.catalogue.catalogue import nearest
from airflow_tpu.core.catalogue.generations import Generations
from airflow_tpu.core.request.fields import Field, Invalid, choice, integer, plain, read_fields, shown
from airflow_tpu.core.tpu.spec import ZONE, Tier
from airflow_tpu.errors import Fault

DEVICES = "devices"
CHIPS = "chips"
_TEXT = re.compile(rf"([1-9][0-9]*) (\S+) (\S+) ({DEVICES}|{CHIPS}) in (\S+)")


@dataclass(frozen=True)
class Allowance:
    """One row of a grant.

    Whole devices of one type (``5 on-demand v3-8 devices``), or chips of a generation in any slice size (``64 spot v5e
    chips``).

    :param count: how many devices or chips may exist at once.
    :param unit: ``devices`` or ``chips``; devices cannot be joined to pods.
    :param tier: spot or on-demand; preemptible is spot.
    :param zone: the one zone where they are free.
    :param accelerator_type: the type, empty if the row names a generation.
    :param generation: such as ``v5e``.
    """

    count: int
    unit: str
    tier: Tier
    zone: str
    generation: str
    accelerator_type: str = ""

    def __str__(self) -> str:
        what = self.accelerator_type or self.generation
        return f"{self.count} {self.tier} {what} {self.unit} in {self.zone}"

    @classmethod
    def parse(cls, text: str, generations: Generations) -> Allowance | None:
        """Read the text of a row back, None if it is none or of a generation that is not known here."""
        found = _TEXT.fullmatch(text)
        if found is None or found[2] not in set(Tier):
            return None
        named, parsed = generations.find(found[3]), generations.parse(found[3])
        if named is None and parsed is None:
            return None
        count, tier = int(found[1]), Tier(found[2])
        if named is not None:
            return cls(count, found[4], tier, found[5], named.name)
        return cls(count, found[4], tier, found[5], parsed.generation if parsed else "", found[3])

    def is_of(self, accelerator_type: str, generation: str) -> bool:
        """Whether the row is about this type of this generation, wherever it is."""
        return self.accelerator_type == accelerator_type if self.accelerator_type else self.generation == generation

    def units(self, chips: int) -> int:
        """How much of the row a TPU of so many chips takes."""
        return 1 if self.unit == DEVICES else chips

    def to_json(self) -> dict[str, Any]:
        """Return the row as the grant file has it: with a type or a generation, whichever the letter names.

        Not the form of :mod:`airflow_tpu.core.json_form`, which would always write both.
        """
        kind = {"type": self.accelerator_type} if self.accelerator_type else {"generation": self.generation}
        return {"count": self.count, "unit": self.unit, "tier": str(self.tier), **kind, "zone": self.zone}


def parse_allowances(rows: object, generations: Generations) -> tuple[tuple[Allowance, ...], list[Fault]]:
    """Read the rows of a grant file.

    :param generations: what there is, and how its types are named.
    :return: the good rows, and a fault for everything wrong in the others.
    """
    if not isinstance(rows, list | tuple) or not rows:
        return (), [Fault("allowances", shown(rows), "must be a list of at least one row")]
    good: list[Allowance] = []
    faults: list[Fault] = []
    for number, row in enumerate(rows):
        prefix = f"allowances[{number}]."
        values, wrong = read_fields(row, _FIELDS, prefix)
        wrong = wrong or _kind_faults(values, prefix, generations)
        faults += wrong
        if not wrong:
            good.append(_allowance(values, generations))
    return tuple(good), faults + _repeated(good)


def zone_name(value: Any) -> str:
    """The name of a zone; whether it exists is for the API to say, grants name zones that price lists do not.

    :raises Invalid: if it is a region or no zone at all.
    """
    zone = plain(value)
    if not ZONE.fullmatch(zone):
        raise Invalid("is no zone; a zone is a region and a letter, such as us-central1-f")
    return zone


def _optional(value: Any) -> str:
    return plain(value)


def _unit(value: Any) -> str:
    plural = f"{value}s" if value in ("device", "chip") else value
    return choice((DEVICES, CHIPS))(plural)


_FIELDS: Mapping[str, Field] = {
    "count": Field(integer(1, 100_000)),
    "unit": Field(_unit),
    "tier": Field(lambda value: Tier(choice(Tier)(value)).pool),
    "type": Field(_optional, ""),
    "generation": Field(_optional, ""),
    "zone": Field(zone_name),
}


def _kind_faults(values: Mapping[str, Any], prefix: str, generations: Generations) -> list[Fault]:
    name, generation, unit = values["type"], values["generation"], values["unit"]
    if bool(name) == bool(generation):
        return [Fault(f"{prefix}type", name, "give either type or generation")]
    if generation and generations.find(generation) is None:
        names = generations.names
        return [Fault(f"{prefix}generation", generation, "is unknown", names, nearest(generation, names))]
    if generation and unit == DEVICES:
        return [Fault(f"{prefix}unit", DEVICES, "devices need a type, such as v2-8", nearest=CHIPS)]
    if name and generations.parse(name) is None:
        named = generations.find(name)
        hint = f"generation: {named.name}" if named else _nearest_type(name, generations)
        return [Fault(f"{prefix}type", name, "is no accelerator type", nearest=hint)]
    if unit == DEVICES and generations.is_slice(name):
        return [Fault(f"{prefix}type", name, "is a pod slice, and devices cannot form pods", nearest=CHIPS)]
    return []


def _nearest_type(name: str, generations: Generations) -> str | None:
    return nearest(generations.respelled(name), [f"{one.type_prefix}-8" for one in generations.entries])


def _allowance(values: Mapping[str, Any], generations: Generations) -> Allowance:
    parsed, named = generations.parse(values["type"]), generations.find(values["generation"])
    generation = parsed.generation if parsed else named.name if named else ""
    return Allowance(values["count"], values["unit"], values["tier"], values["zone"], generation, values["type"])


def _repeated(rows: list[Allowance]) -> list[Fault]:
    pools = [(row.unit, row.tier, row.zone, row.generation, row.accelerator_type) for row in rows]
    twice = {pool: row for pool, row in zip(pools, rows, strict=True) if pools.count(pool) > 1}
    return [Fault("allowances", str(row), "is given more than once; add up the counts") for row in twice.values()]
