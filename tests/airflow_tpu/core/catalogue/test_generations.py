# SPDX-License-Identifier: Apache-2.0
"""Generations, and the rule by which the names of their types are read."""

from __future__ import annotations

import pytest

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.catalogue.generations import TypeName
from tests.airflow_tpu.shipped import GENERATIONS


def test_the_naming_rule_agrees_with_the_table(catalogue: Catalogue) -> None:
    """Chips and generation of every type in the table follow from its name."""
    served = [kind for kind in catalogue.types.values() if kind.supported]
    assert {kind.name: GENERATIONS.parse(kind.name) for kind in served} == {
        kind.name: TypeName(kind.generation, kind.chips) for kind in served
    }


def test_topology_stands_for_a_type(catalogue: Catalogue) -> None:
    """A type that is given as generation and topology is the one of the table with this topology."""
    api_types = {"v5e": "V5LITE_POD"}
    kinds = [kind for kind in catalogue.types.values() if kind.supported and kind.topology]
    assert len(kinds) > 10
    for kind in kinds:
        api_type = api_types.get(kind.generation, kind.generation.upper())
        assert GENERATIONS.type_name(f"{api_type} {kind.topology}") == kind.name


@pytest.mark.parametrize("other", ["v2-8", "", "V9 2x2", "V4 2", "V4 0x2", "V4", "TYPE_UNSPECIFIED 2x2", "v4 2x2x1"])
def test_what_is_no_topology_stays(other: str) -> None:
    """Anything else is left as it is, and what is no type stays unknown."""
    assert GENERATIONS.type_name(other) == other


def test_pods_are_the_types_of_several_hosts(catalogue: Catalogue) -> None:
    """The rule for pods agrees with the number of worker VMs in the table."""
    served = [kind for kind in catalogue.types.values() if kind.supported]
    assert {kind.name for kind in served if GENERATIONS.is_slice(kind.name)} == {
        kind.name for kind in served if kind.hosts > 1
    }


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("v4-32", TypeName("v4", 16)),
        ("v4-64", TypeName("v4", 32)),
        ("v5litepod-16", TypeName("v5e", 16)),
        ("v6e-1", TypeName("v6e", 1)),
        ("v2-1", None),
        ("v5e-8", None),
        ("tpu7x-8", None),
        ("v4-032", None),
        ("", None),
        ("v4-٣٢", None),
    ],
)
def test_chips_are_not_the_number_in_the_name(name: str, parsed: TypeName | None) -> None:
    """Older generations count cores, two to a chip; a name outside the rule has no chips rather than wrong ones."""
    assert GENERATIONS.parse(name) == parsed


@pytest.mark.parametrize(
    ("spelling", "name"), [("v5e", "v5e"), ("v5litepod", "v5e"), ("v5lite", "v5e"), ("v4", "v4"), ("v9x", None)]
)
def test_a_generation_has_several_names(spelling: str, name: str | None) -> None:
    """A generation is found by its own name, by that of its types and by what people call it."""
    found = GENERATIONS.find(spelling)
    assert (found.name if found else None) == name


@pytest.mark.parametrize(
    ("written", "meant"),
    [("v5e-8", "v5litepod-8"), ("v5lite-4", "v5litepod-4"), ("v4-8", "v4-8"), ("x-1", "x-1"), ("v4", "v4")],
)
def test_a_type_that_is_named_like_its_generation_is_understood(written: str, meant: str) -> None:
    """People write v5e-8; the name that the API has is v5litepod-8."""
    assert GENERATIONS.respelled(written) == meant
