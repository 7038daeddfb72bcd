# SPDX-License-Identifier: Apache-2.0
"""What the tables of the catalogue must look like, column by column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

from airflow_tpu.core.catalogue.generations import Generations
from airflow_tpu.core.catalogue.tables import Check, Row, Table, anything, count, day, price, python, rate, text, zone
from airflow_tpu.core.catalogue.transfer_rates import CONTINENTS

SERVED = "v2"
"""Column ``tpu_api`` of a type that the Cloud TPU API serves, in this version of it."""


def types_table(generations: Generations) -> Table:
    """What ``accelerators.csv`` must look like beside these generations."""
    columns = {"generation": _known_generation(generations), "chips": _chips_by_name(generations)}
    table = TABLES["accelerators.csv"]
    return replace(table, columns=table.columns | columns)


def _known_generation(generations: Generations) -> Check:
    def check(value: str, row: Row) -> str:
        if row["tpu_api"] != SERVED or value in generations.names:
            return text(value, row)
        return f"has no row in generations.csv, which has {', '.join(generations.names)}"

    return check


def _chips_by_name(generations: Generations) -> Check:
    """Chips are what a grant counts: they may not differ from what the type's name says."""

    def check(value: str, row: Row) -> str:
        name = row["accelerator_type"]
        by_rule = generations.parse(name)
        if by_rule is None:
            names = "; ".join(f"{one.type_prefix}-8" for one in generations.entries if one.name == row["generation"])
            return f"cannot be checked: {name} is not named like {names}" if names else count(value, row)
        if value != str(by_rule.chips):
            return f"is not {by_rule.chips}, which the name {name} stands for"
        return count(value, row)

    return check


def _number_per_chip(value: str, _row: Row) -> str:
    return "" if value in ("1", "2") else "is neither 1 (names count chips) nor 2 (names count cores)"


def _continent(value: str, _row: Row) -> str:
    return "" if value in CONTINENTS else f"is none of {', '.join(CONTINENTS)}"


def _high(value: str, row: Row) -> str:
    """The upper end of a range; it is compared only with a lower end that is fine itself."""
    problem = rate(value, row)
    if problem or rate(row["low_usd_per_gib"], row):
        return problem
    return "is below low_usd_per_gib" if Decimal(value) < Decimal(row["low_usd_per_gib"]) else ""


_SOURCE: dict[str, Check] = {"source": text, "source_date": day}
_GENERATIONS: dict[str, Check] = {
    **dict.fromkeys(("generation", "type_prefix"), text),
    "number_per_chip": _number_per_chip,
    "vm_chips": count,
    "also_called": anything,
}
_TYPES: dict[str, Check] = {
    **dict.fromkeys(("accelerator_type", "generation"), text),
    **dict.fromkeys(("chips", "cores", "hosts"), count),
    **dict.fromkeys(("topology", "tf_runtime_version", "base_runtime_version", "tpu_api"), anything),
}
_PRICES: dict[str, Check] = {
    "accelerator_type": text,
    "zone": zone,
    **dict.fromkeys(("on_demand_usd_per_chip_hour", "spot_usd_per_chip_hour"), price),
}
_VERSIONS: dict[str, Check] = dict.fromkeys(("runtime_version", "generations"), text)
_FRAMEWORKS: dict[str, Check] = dict.fromkeys(("framework", "version", "generations", "packages"), text)
_TRANSFER: dict[str, Check] = {
    **dict.fromkeys(("from_continent", "to_continent"), _continent),
    "low_usd_per_gib": rate,
    "high_usd_per_gib": _high,
}
TABLES: Mapping[str, Table] = {
    "generations.csv": Table(_GENERATIONS | _SOURCE, key=("generation",)),
    "accelerators.csv": Table(_TYPES | _SOURCE, key=("accelerator_type",)),
    "prices.csv": Table(_PRICES | _SOURCE, key=("accelerator_type", "zone")),
    "runtime_versions.csv": Table(
        _VERSIONS | _SOURCE, key=("runtime_version", "generations"), optional={"python": python}
    ),
    "transfer.csv": Table(_TRANSFER | _SOURCE, key=("from_continent", "to_continent")),
    "frameworks.csv": Table(_FRAMEWORKS | _SOURCE, key=("framework", "version")),
}
"""The files of a catalogue, the generations before the types that are checked against them."""
