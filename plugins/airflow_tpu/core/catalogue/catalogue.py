# SPDX-License-Identifier: Apache-2.0
"""What Cloud TPU offers: types, zones, list prices and runtime versions, and what traffic costs, from five CSV files.

The figures and their sources are in ``include/catalogue``. Spot prices move, so every price carries the place
and the day it was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path

from airflow_tpu.core.catalogue.columns import SERVED, TABLES, types_table
from airflow_tpu.core.catalogue.generations import Generations
from airflow_tpu.core.catalogue.tables import Row
from airflow_tpu.core.catalogue.transfer_rates import Rate
from airflow_tpu.core.tpu.spec import Tier
from airflow_tpu.errors import ConfigError, Fault


@dataclass(frozen=True)
class AcceleratorType:
    """One slice size of one TPU generation.

    :param name: Google's name, such as ``v5litepod-8``.
    :param generation: such as ``v5e``.
    :param chips: number of chips, which is what a grant counts (*not* the number in the name).
    :param cores: number of TensorCores.
    :param hosts: number of worker VMs; more than one makes it a pod slice.
    :param topology: such as ``2x4``, empty if Google gives none.
    :param default_runtime: runtime version with TensorFlow for this type.
    :param base_runtime: plain runtime version for this type.
    :param supported: False for types that the Cloud TPU API does not serve.
    :param runtimes: runtime versions of its generation, those for other numbers of workers included.
    """

    name: str
    generation: str
    chips: int
    cores: int
    hosts: int
    topology: str = ""
    default_runtime: str = ""
    base_runtime: str = ""
    supported: bool = True
    runtimes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Price:
    """List price of one chip for one hour.

    :param usd_per_chip_hour: in US dollars.
    :param source: where it was read.
    :param date: ISO day it was read.
    """

    usd_per_chip_hour: Decimal
    source: str
    date: str


@dataclass(frozen=True)
class Catalogue:
    """The tables, read once.

    :param types: accelerator types by name.
    :param prices: list prices by (type, zone, quota pool).
    :param zones: zones that offer a type, by type.
    :param runtimes: runtime versions by generation.
    :param transfer: rates of data transfer by the continents from and to.
    :param generations: generations, and the rule by which their types are named.
    :param pythons: version of Python on the TPU VMs of a runtime version, where it is known. Google lists none: images
        without TensorFlow are Ubuntu 22.04, whose Python is 3.10 (https://github.com/pytorch/xla/pull/5294); TensorFlow
        2.14 gave up Python 3.8, which the images before it have (https://github.com/tensorflow/tensorflow/issues/52149).
    :param frameworks: packages that bring a framework to a TPU, as rows of ``frameworks.csv``.
    """

    types: Mapping[str, AcceleratorType]
    prices: Mapping[tuple[str, str, Tier], Price]
    zones: Mapping[str, tuple[str, ...]]
    runtimes: Mapping[str, tuple[str, ...]]
    transfer: Mapping[tuple[str, str], Rate] = field(default_factory=dict)
    generations: Generations = field(default_factory=Generations)
    frameworks: tuple[Mapping[str, str], ...] = ()
    pythons: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def load(cls, directory: Path, own: Mapping[str, Path] | None = None) -> Catalogue:
        """Read the files of :data:`airflow_tpu.core.catalogue.columns.TABLES`.

        :param directory: the folder they are in.
        :param own: files to read instead, by the name of the file that each replaces as a whole.
        :raises FileNotFoundError: if one of them is missing.
        :raises ConfigError: something is wrong in them; every cell at once, by file, row and column.
        """
        paths = {name: directory / name for name in TABLES} | dict(own or {})
        rows, faults = _read(paths)
        if faults:
            raise ConfigError(faults, "the catalogue")
        offers, runtimes = rows["prices.csv"], _runtimes(rows["runtime_versions.csv"])
        return cls(
            types={row["accelerator_type"]: _type(row, runtimes) for row in rows["accelerators.csv"]},
            prices=_prices(offers),
            zones=_grouped((row["accelerator_type"], row["zone"]) for row in offers),
            runtimes=runtimes,
            transfer=_transfer(rows["transfer.csv"]),
            generations=Generations.of_rows(rows["generations.csv"]),
            frameworks=tuple(rows["frameworks.csv"]),
            pythons=_pythons(rows["runtime_versions.csv"]),
        )

    def zones_of(self, accelerator_type: str) -> tuple[str, ...]:
        """Zones that offer a type, empty for an unknown type."""
        return self.zones.get(accelerator_type, ())

    def also_in(self, offers: Iterable[tuple[str, str]]) -> Catalogue:
        """The catalogue with more offers than the price list has; their prices are unknown.

        :param offers: types and zones.
        """
        every = [(name, zone) for name, zones in self.zones.items() for zone in zones]
        return replace(self, zones=_grouped(dict.fromkeys([*every, *offers])))

    def price(self, accelerator_type: str, zone: str, tier: Tier) -> Price | None:
        """List price, None when none is published: unknown is not free."""
        return self.prices.get((accelerator_type, zone, tier.pool))

    def runtime_versions(self, generation: str) -> tuple[str, ...]:
        """Runtime versions that run on a generation."""
        return self.runtimes.get(generation, ())

    def all_runtimes(self) -> frozenset[str]:
        """Every runtime version of the table."""
        return frozenset(name for names in self.runtimes.values() for name in names)

    def single_host_types(self) -> tuple[str, ...]:
        """Types of one worker VM that the Cloud TPU API serves."""
        return tuple(kind.name for kind in self.types.values() if kind.hosts == 1 and kind.supported)


def nearest(value: object, choices: Iterable[str]) -> str | None:
    """The choice that reads most like the value, None if none does."""
    import difflib  # only a mistake needs it

    text = str(value).strip().lower()[:100]
    return next(iter(difflib.get_close_matches(text, list(choices), n=1, cutoff=0.4)), None)


def _read(paths: Mapping[str, Path]) -> tuple[dict[str, list[Row]], list[Fault]]:
    """The rows of every table, and what is wrong in any of them; types are checked against the generations."""
    rows: dict[str, list[Row]] = {}
    faults: list[Fault] = []
    for name, table in TABLES.items():
        if name == "accelerators.csv" and not faults:
            table = types_table(Generations.of_rows(rows["generations.csv"]))
        rows[name], wrong = table.read(paths[name])
        faults += wrong
    return rows, faults


def _type(row: Mapping[str, str], runtimes: Mapping[str, tuple[str, ...]]) -> AcceleratorType:
    generation = row["generation"].split(" ")[0]
    return AcceleratorType(
        name=row["accelerator_type"],
        generation=generation,
        chips=int(row["chips"]),
        cores=int(row["cores"]),
        hosts=int(row["hosts"]),
        topology=row["topology"],
        default_runtime=row["tf_runtime_version"],
        base_runtime=row["base_runtime_version"],
        supported=row["tpu_api"] == SERVED,
        runtimes=runtimes.get(generation, ()),
    )


def _prices(offers: list[dict[str, str]]) -> dict[tuple[str, str, Tier], Price]:
    columns = {Tier.ON_DEMAND: "on_demand_usd_per_chip_hour", Tier.SPOT: "spot_usd_per_chip_hour"}
    return {
        (row["accelerator_type"], row["zone"], tier): Price(Decimal(row[column]), row["source"], row["source_date"])
        for row in offers
        for tier, column in columns.items()
        if row[column]
    }


def _runtimes(rows: list[dict[str, str]]) -> dict[str, tuple[str, ...]]:
    return _grouped(
        (generation, row["runtime_version"]) for row in rows for generation in row["generations"].split(";")
    )


def _pythons(rows: list[dict[str, str]]) -> dict[str, tuple[int, int]]:
    known = [(row["runtime_version"], row.get("python", "").partition(".")) for row in rows]
    return {runtime: (int(major), int(minor)) for runtime, (major, _, minor) in known if minor}


def _transfer(rows: list[dict[str, str]]) -> dict[tuple[str, str], Rate]:
    return {
        (row["from_continent"], row["to_continent"]): Rate(
            Decimal(row["low_usd_per_gib"]), Decimal(row["high_usd_per_gib"]), row["source"], row["source_date"]
        )
        for row in rows
    }


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    grouped: dict[str, list[str]] = {}
    for key, value in pairs:
        grouped.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in grouped.items()}
