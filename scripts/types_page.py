# SPDX-License-Identifier: Apache-2.0
"""Write docs/tpu-types.md from the catalogue: which TPUs there are, where, and what they cost by list.

Usage: ``types_page.py > docs/tpu-types.md``.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

CATALOGUE = Path(__file__).parents[1] / "include" / "catalogue"
Row = dict[str, str]


def rows(name: str, folder: Path = CATALOGUE) -> list[Row]:
    """The rows of one table."""
    with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def page(folder: Path = CATALOGUE) -> str:
    """The whole page.

    :param folder: where the tables are.
    """
    types, prices = rows("accelerators", folder), rows("prices", folder)
    ours = [row for row in types if row["tf_runtime_version"]]
    read = sorted({row["source_date"] for row in prices})[-1]
    table = [*head(rows("generations", folder)), *map(type_row, ours)]
    return "\n".join([*table, *PRICES, *price_rows(ours, prices), *tail(prices, read), ""])


def type_row(row: Row) -> str:
    """One type."""
    cells = (row["accelerator_type"], row["chips"], row["hosts"], row["topology"])
    return f"| {' | '.join(cells)} | `{row['tf_runtime_version']}` | `{row['base_runtime_version']}` |"


def price_rows(types: list[Row], prices: list[Row]) -> list[str]:
    """Types and zones that cost the same, one row each, in the order of the types."""
    order = [row["accelerator_type"] for row in types]
    in_zone: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    generation = {row["accelerator_type"]: row["generation"] for row in types}
    for row in prices:
        if row["accelerator_type"] in generation:
            money = (row["on_demand_usd_per_chip_hour"], row["spot_usd_per_chip_hour"])
            in_zone[(generation[row["accelerator_type"]], row["zone"], *money)].append(row["accelerator_type"])
    same: dict[tuple[tuple[str, ...], str, str], list[str]] = defaultdict(list)
    for (_, zone, on_demand, spot), names in in_zone.items():
        same[(tuple(sorted(names, key=order.index)), on_demand, spot)].append(zone)
    found = sorted(same.items(), key=lambda item: ([order.index(name) for name in item[0][0]], item[1]))
    return [
        f"| {', '.join(names)} | {', '.join(sorted(zones))} | {on_demand or 'unknown'} | {spot or 'unknown'} |"
        for (names, on_demand, spot), zones in found
    ]


def tail(prices: list[Row], read: str) -> list[str]:
    """Where the prices are from."""
    sources = ", ".join(sorted({row["source"] for row in prices if row["spot_usd_per_chip_hour"]}))
    return ["", f"Read on {read} from {sources}; [Google's price page](https://cloud.google.com/tpu/pricing) decides."]


def head(generations: list[Row]) -> list[str]:
    """The text above the table of types."""
    *others, last = [row["generation"] for row in generations if row["number_per_chip"] == "2"]
    by_cores = f"grant counts *chips*, but the name of a {', '.join(others)} or {last} counts their *cores*: a v4-8"
    return [*TITLE, f"{by_cores} has 4 chips. Types with", *HEAD]


TITLE = [
    "# TPU types and prices",
    "",
    "<!-- Written by scripts/types_page.py from include/catalogue/; do not edit. -->",
    "",
    "The TPUs that a run can ask for if a row of the grant covers them; `airflow-tpu grant check` says which are. A",
]
HEAD = [
    "more than one VM are refused for now.",
    "",
    "An empty *Runtime version* in the form is the one with TensorFlow; the plain one is for everything else.",
    "[grant.md](grant.md#types-zones-and-prices) says how to replace these tables, and to compare them with Google's",
    "lists.",
    "",
    "| type | chips | VMs | topology | runtime version with TensorFlow | plain runtime version |",
    "|---|---|---|---|---|---|",
]
PRICES = [
    "",
    "## Prices by list",
    "",
    "US dollars for one chip and one hour. Of a TPU that the grant covers this is the *list value not paid*; any",
    "other TPU is billed by Google for about this.",
    "",
    "| types | zones | on-demand | spot |",
    "|---|---|---|---|",
]

if __name__ == "__main__":
    print(page(), end="")
