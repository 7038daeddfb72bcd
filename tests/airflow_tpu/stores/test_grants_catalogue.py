# SPDX-License-Identifier: Apache-2.0
"""A catalogue of one's own replaces ours file by file, and says where it is wrong."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

import pytest

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.catalogue.columns import TABLES
from airflow_tpu.core.tpu.spec import Tier
from airflow_tpu.errors import ConfigError
from airflow_tpu.stores.grants import load_catalogue, own_tables

ROOT = Path(__file__).resolve().parents[3]
OURS = ROOT / "include" / "catalogue"
PRICES = """\
accelerator_type,zone,on_demand_usd_per_chip_hour,spot_usd_per_chip_hour,source,source_date
v2-8,us-central1-f,1.5,,my invoice,2026-10-31
"""
RATES = """\
from_continent,to_continent,low_usd_per_gib,high_usd_per_gib,source,source_date
asia,europe,0.02,0.03,my invoice,2026-10-31
"""
GENERATIONS = (OURS / "generations.csv").read_text(encoding="utf-8")
TYPES = (OURS / "accelerators.csv").read_text(encoding="utf-8")


def load(folder: Path) -> Catalogue:
    """The catalogue with the tables of a folder."""
    return Catalogue.load(OURS, own_tables(folder))


def test_one_file_replaces_ours(tmp_path: Path) -> None:
    """A price list of one's own is used as a whole, byte-order mark or not; types and versions stay ours."""
    (tmp_path / "prices.csv").write_text(PRICES, encoding="utf-8-sig")
    mine, ours = load(tmp_path), Catalogue.load(OURS)
    price = mine.price("v2-8", "us-central1-f", Tier.ON_DEMAND)
    assert price is not None
    assert (price.usd_per_chip_hour, price.source, price.date) == (Decimal("1.5"), "my invoice", "2026-10-31")
    assert mine.price("v2-8", "us-central1-f", Tier.SPOT) is None
    assert (mine.zones_of("v2-8"), mine.zones_of("v3-8")) == (("us-central1-f",), ())
    assert (mine.types, mine.runtimes) == (ours.types, ours.runtimes)


def test_every_file_can_be_replaced(tmp_path: Path) -> None:
    """Copies of all of them are the same catalogue."""
    for name in TABLES:
        (tmp_path / name).write_bytes((OURS / name).read_bytes())
    assert load(tmp_path) == Catalogue.load(OURS)
    assert set(own_tables(tmp_path)) == set(TABLES)


@pytest.mark.parametrize(
    ("name", "text", "place", "problem"),
    [
        ("prices.csv", PRICES.replace("1.5", "1,5"), "row 2", "has not as many cells"),
        ("prices.csv", PRICES.replace(",my invoice", ""), "row 2", "has not as many cells"),
        ("prices.csv", PRICES.replace("1.5", "free"), "row 2, column on_demand_usd_per_chip_hour", "is not a price"),
        ("prices.csv", PRICES.replace("1.5", "0"), "row 2, column on_demand_usd_per_chip_hour", "is not a price"),
        ("prices.csv", PRICES.replace("1.5", "NaN"), "row 2, column on_demand_usd_per_chip_hour", "is not a price"),
        ("prices.csv", PRICES.replace("-f,", ","), "row 2, column zone", "is not a zone"),
        ("prices.csv", PRICES.replace("my invoice", " "), "row 2, column source", "is empty"),
        ("prices.csv", PRICES.replace("10-31", "31-10"), "row 2, column source_date", "is not a date"),
        ("prices.csv", PRICES + "\n" + PRICES.splitlines()[1], "row 4, column zone", "repeats row 2"),
        ("prices.csv", PRICES.replace(",source_date", ",day"), "row 1, column source_date", "is missing"),
        ("prices.csv", PRICES.splitlines()[0], "", "has no rows"),
        ("prices.csv", "", "row 1, column zone", "is missing"),
        ("transfer.csv", RATES.replace("0.02", ""), "row 2, column low_usd_per_gib", "is empty"),
        ("transfer.csv", RATES.replace("0.03", "0.01"), "row 2, column high_usd_per_gib", "is below low"),
        ("transfer.csv", RATES.replace("asia,e", "asien,e"), "row 2, column from_continent", "is none of"),
        ("prices.csv", PRICES + '"v2', "", "is not a CSV file"),
        ("accelerators.csv", TYPES.replace("v2-8,v2,4,", "v2-8,v2,8,"), "row 2, column chips", "is not 4, which the"),
        ("accelerators.csv", TYPES.replace("v2-8,v2,", "v2-8,v7x,"), "row 2, column generation", "has no row in"),
        ("accelerators.csv", TYPES.replace("v2-8,", "vv-8,"), "row 2, column chips", "vv-8 is not named like v2-8"),
        (
            "generations.csv",
            GENERATIONS.replace("v2,v2,2,", "v2,v2,3,"),
            "row 2, column number_per_chip",
            "is neither 1",
        ),
        (
            "accelerators.csv",
            TYPES.replace("tpu7x-", "tpu8x-").replace(",4,8,1,", ",4,8,one,"),
            "column hosts",
            "whole",
        ),
        (
            "runtime_versions.csv",
            "runtime_version,generations,source,source_date\nx,,y,2026-01-01",
            "row 2",
            "is empty",
        ),
    ],
)
def test_a_wrong_cell_is_named(tmp_path: Path, name: str, text: str, place: str, problem: str) -> None:
    """What is wrong comes with file, row and column, the header being row 1."""
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"{re.escape(str(tmp_path / name))}.*{place}.*{problem}"):
        load(tmp_path)


def test_every_wrong_cell_is_named_at_once(tmp_path: Path) -> None:
    """Faults of two files come together."""
    (tmp_path / "prices.csv").write_text(PRICES.replace("1.5", "x").replace("-f,", ","), encoding="utf-8")
    (tmp_path / "accelerators.csv").write_text("nothing", encoding="utf-8")
    (tmp_path / "runtime_versions.csv").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError) as caught:
        load(tmp_path)
    assert len([fault for fault in caught.value.faults if "prices.csv, row 2" in fault.field]) == 2
    assert any("accelerators.csv, row 1, column chips" in fault.field for fault in caught.value.faults)
    assert any("runtime_versions.csv" in fault.field for fault in caught.value.faults)


@pytest.mark.parametrize(("made", "said"), [((), "is not a folder with a table"), (("price.csv",), "is no table of")])
def test_a_folder_without_a_table_is_refused(tmp_path: Path, made: tuple[str, ...], said: str) -> None:
    """An empty folder, or a file name that nobody would read, is an error and not our prices."""
    for name in made:
        (tmp_path / name).write_text(PRICES, encoding="utf-8")
    with pytest.raises(
        ConfigError,
        match=rf"{said}.*allowed: generations\.csv, accelerators\.csv, prices\.csv, runtime_versions\.csv, transfer",
    ):
        load(tmp_path)


def test_the_option_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration that names the folder makes everybody use its tables."""
    (tmp_path / "prices.csv").write_text(PRICES, encoding="utf-8")
    monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__CATALOGUE", str(tmp_path))
    assert len(load_catalogue.__wrapped__().prices) == 1
