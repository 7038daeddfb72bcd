# SPDX-License-Identifier: Apache-2.0
"""The grant whose two rows are about the same TPUs, once by their type and once by their generation."""

from __future__ import annotations

from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.core.grant.inventory import InventoryItem
from airflow_tpu.core.tpu.resource_name import node_name
from airflow_tpu.core.tpu.spec import Tier
from tests.airflow_tpu.shipped import GENERATIONS

ZONE = "europe-west4-b"
KIND = "v5litepod-8"
CHIPS_ROW = f"8 spot v5e chips in {ZONE}"


def two_rows(local_grant: Grant, devices: int) -> Grant:
    """Eight spot v5e chips and some spot v5litepod-8 devices in one zone, the chips first."""
    rows = [
        {"count": 8, "unit": "chips", "tier": "spot", "generation": "v5e", "zone": ZONE},
        {"count": devices, "unit": "devices", "tier": "spot", "type": KIND, "zone": ZONE},
    ]
    return Grant.parse({**local_grant.to_json(), "allowances": rows}, GENERATIONS)


def alive(count: int) -> tuple[InventoryItem, ...]:
    """Living spot v5litepod-8 of the project."""
    return tuple(InventoryItem(node_name("p", ZONE, f"n{n}"), KIND, Tier.SPOT, ZONE, None) for n in range(count))
