"""What Cloud TPU offers: types, zones, list prices and runtime versions, and what traffic costs, from four CSV files.

The figures and their sources are in ``include/catalogue``. Spot prices move, so every price carries the place
and the day it was read.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from airflow_tpu.core.catalogue.tables import Check, Row, Table, anything, count, day, price, rate, text, zone
from airflow_tpu.core.catalogue.transfer_rates import CONTINENTS, Rate
from airflow_tpu.core.tpu.spec import Tier
from airflow_tpu.errors import ConfigError, Fault

_TYPE_NAME = re.compile(r"(v2|v3|v4|v5p|v5litepod|v6e)-([1-9][0-9]{0,5})")
_GENERATIONS = {"v5litepod": "v5e"}
_COUNTS_CORES = frozenset({"v2", "v3", "v4", "v5p"})
GENERATIONS = ("v2", "v3", "v4", "v5e", "v5p", "v6e")


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
    """

    types: Mapping[str, AcceleratorType]
    prices: Mapping[tuple[str, str, Tier], Price]
    zones: Mapping[str, tuple[str, ...]]
    runtimes: Mapping[str, tuple[str, ...]]
    transfer: Mapping[tuple[str, str], Rate] = field(default_factory=dict)

    @classmethod
    def load(cls, directory: Path, own: Mapping[str, Path] | None = None) -> Catalogue:
        """Read ``accelerators.csv``, ``prices.csv``, ``runtime_versions.csv`` and ``transfer.csv``.

        :param directory: the folder they are in.
        :param own: files to read instead, by the name of the file that each replaces as a whole.
        :raises FileNotFoundError: if one of them is missing.
        :raises ConfigError: something is wrong in them; every cell at once, by file, row and column.
        """
        rows: dict[str, list[Row]] = {}
        faults: list[Fault] = []
        for name, table in TABLES.items():
            rows[name], wrong = table.read((own or {}).get(name, directory / name))
            faults += wrong
        if faults:
            raise ConfigError(faults, "the catalogue")
        offers, runtimes = rows["prices.csv"], _runtimes(rows["runtime_versions.csv"])
        return cls(
            types={row["accelerator_type"]: _type(row, runtimes) for row in rows["accelerators.csv"]},
            prices=_prices(offers),
            zones=_grouped((row["accelerator_type"], row["zone"]) for row in offers),
            runtimes=runtimes,
            transfer=_transfer(rows["transfer.csv"]),
        )

    def zones_of(self, accelerator_type: str) -> tuple[str, ...]:
        """Zones that offer a type, empty for an unknown type."""
        return self.zones.get(accelerator_type, ())

    def price(self, accelerator_type: str, zone: str, tier: Tier) -> Price | None:
        """List price, None when nobody has published one: unknown is not free."""
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
    text = str(value).strip().lower()[:100]
    return next(iter(difflib.get_close_matches(text, list(choices), n=1, cutoff=0.4)), None)


def parse_type(name: str) -> tuple[str, int] | None:
    """Generation and chips by Google's naming rule, None for a name outside it.

    v2, v3, v4 and v5p count TensorCores, two to a chip; v5litepod and v6e count chips. So ``v4-32`` is 16 chips.
    """
    match = _TYPE_NAME.fullmatch(name)
    if match is None:
        return None
    family, number = match.group(1), int(match.group(2))
    chips = number // 2 if family in _COUNTS_CORES else number
    return (_GENERATIONS.get(family, family), chips) if chips else None


def is_pod(accelerator_type: str) -> bool:
    """Whether a type needs more than one worker VM, by Google's naming rule."""
    generation, chips = parse_type(accelerator_type) or ("", 0)
    return chips > (4 if generation in _COUNTS_CORES else 8)


def _chips(value: str, row: Row) -> str:
    """Chips are what a grant counts: they may not differ from what the type's name says."""
    by_rule = parse_type(row["accelerator_type"])
    if by_rule is not None and value != str(by_rule[1]):
        return f"is not {by_rule[1]}, which the name {row['accelerator_type']} stands for"
    return count(value, row)


def _continent(value: str, _row: Row) -> str:
    return "" if value in CONTINENTS else f"is none of {', '.join(CONTINENTS)}"


def _high(value: str, row: Row) -> str:
    """The upper end of a range; it is compared only with a lower end that is fine itself."""
    problem = rate(value, row)
    if problem or rate(row["low_usd_per_gib"], row):
        return problem
    return "is below low_usd_per_gib" if Decimal(value) < Decimal(row["low_usd_per_gib"]) else ""


_SOURCE: dict[str, Check] = {"source": text, "source_date": day}
_TYPES: dict[str, Check] = {
    **dict.fromkeys(("accelerator_type", "generation"), text),
    "chips": _chips,
    **dict.fromkeys(("cores", "hosts"), count),
    **dict.fromkeys(("topology", "tf_runtime_version", "base_runtime_version", "tpu_api"), anything),
}
_PRICES: dict[str, Check] = {
    "accelerator_type": text,
    "zone": zone,
    **dict.fromkeys(("on_demand_usd_per_chip_hour", "spot_usd_per_chip_hour"), price),
}
_VERSIONS: dict[str, Check] = dict.fromkeys(("runtime_version", "generations"), text)
_TRANSFER: dict[str, Check] = {
    **dict.fromkeys(("from_continent", "to_continent"), _continent),
    "low_usd_per_gib": rate,
    "high_usd_per_gib": _high,
}
TABLES: Mapping[str, Table] = {
    "accelerators.csv": Table(_TYPES | _SOURCE, key=("accelerator_type",)),
    "prices.csv": Table(_PRICES | _SOURCE, key=("accelerator_type", "zone")),
    "runtime_versions.csv": Table(_VERSIONS | _SOURCE, key=("runtime_version", "generations")),
    "transfer.csv": Table(_TRANSFER | _SOURCE, key=("from_continent", "to_continent")),
}
"""The files of a catalogue."""


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
        supported=row["tpu_api"] == "v2",
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
