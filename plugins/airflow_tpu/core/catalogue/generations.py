# SPDX-License-Identifier: Apache-2.0
"""TPU generations, and Google's rule for the names of their types: one row of ``generations.csv`` each."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_TOPOLOGY = re.compile(r"(?P<type>[A-Z][A-Z0-9_]*) (?P<sides>[1-9][0-9]{0,2}(?:x[1-9][0-9]{0,2}){1,2})", re.ASCII)
_TYPE_NAME = re.compile(r"(?P<prefix>[a-z][a-z0-9]*)-(?P<number>[1-9][0-9]{0,5})", re.ASCII)


@dataclass(frozen=True)
class TPUGeneration:
    """One generation.

    :param name: such as ``v5e``, as grants and price lists have it.
    :param type_prefix: what the names of its types begin with, such as ``v5litepod``.
    :param number_per_chip: what the number in such a name counts: 1 for chips, 2 for cores, of which a chip has two.
    :param vm_chips: chips of its largest type of one worker VM; a type with more is a pod slice.
    :param also_called: other names that letters and people use.
    """

    name: str
    type_prefix: str
    number_per_chip: int
    vm_chips: int
    also_called: tuple[str, ...] = ()

    @classmethod
    def of_row(cls, row: Mapping[str, str]) -> TPUGeneration:
        """Read a row of the table that has been checked."""
        also_called = tuple(name for name in row["also_called"].split(";") if name)
        numbers = int(row["number_per_chip"]), int(row["vm_chips"])
        return cls(row["generation"], row["type_prefix"], *numbers, also_called)

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every name it goes by."""
        return tuple(dict.fromkeys((self.name, self.type_prefix, *self.also_called)))


@dataclass(frozen=True)
class TypeName:
    """What the name of a type says by Google's naming rule.

    :param generation: such as ``v5e``.
    :param chips: number of chips; ``v4-32`` is 16 of them, ``v5litepod-16`` is 16.
    """

    generation: str
    chips: int


@dataclass(frozen=True)
class Generations:
    """All generations of a catalogue, in its order."""

    entries: tuple[TPUGeneration, ...] = ()

    @classmethod
    def of_rows(cls, rows: Iterable[Mapping[str, str]]) -> Generations:
        """Read the rows of the table."""
        return cls(tuple(TPUGeneration.of_row(row) for row in rows))

    @property
    def names(self) -> tuple[str, ...]:
        """Such as ``v5e``."""
        return tuple(one.name for one in self.entries)

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every name of every generation."""
        return tuple(name for one in self.entries for name in one.spellings)

    def find(self, spelling: str) -> TPUGeneration | None:
        """The generation of this name, prefix of a type or other spelling, None if there is none."""
        return next((one for one in self.entries if spelling in one.spellings), None)

    def parse(self, accelerator_type: str) -> TypeName | None:
        """Generation and chips of a type, whether the catalogue lists it or not; None for a name outside the rule."""
        match = _TYPE_NAME.fullmatch(accelerator_type)
        found = next((one for one in self.entries if match and one.type_prefix == match["prefix"]), None)
        if match is None or found is None:
            return None
        chips = int(match["number"]) // found.number_per_chip
        return TypeName(found.name, chips) if chips else None

    def type_name(self, accelerator_type: str) -> str:
        """The name of a type that is given as the API's generation and a topology, ``V5LITE_POD 2x4``; others stay."""
        match = _TOPOLOGY.fullmatch(accelerator_type)
        found = self.find(match["type"].lower().replace("_", "")) if match else None
        if match is None or found is None:
            return accelerator_type
        chips = math.prod(map(int, match["sides"].split("x")))
        return f"{found.type_prefix}-{chips * found.number_per_chip}"

    def is_slice(self, accelerator_type: str) -> bool:
        """Whether a type needs more than one worker VM."""
        parsed = self.parse(accelerator_type)
        return parsed is not None and parsed.chips > next(
            one.vm_chips for one in self.entries if one.name == parsed.generation
        )

    def respelled(self, accelerator_type: str) -> str:
        """The name of a type with Google's prefix: people write v5e-8, the API's name is v5litepod-8."""
        spelling, dash, number = accelerator_type.partition("-")
        found = self.find(spelling)
        return f"{found.type_prefix}{dash}{number}" if found and dash else accelerator_type
