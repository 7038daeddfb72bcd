"""The grant: what the letter allows, what exists, and whether one more TPU is covered.

The parts have files of their own; this is the place to import them from.
"""

from __future__ import annotations

from airflow_tpu.core.allowance import Allowance
from airflow_tpu.core.authorize import Permit, Request, authorize
from airflow_tpu.core.grant_file import Grant
from airflow_tpu.core.inventory import Inventory, InventoryItem

__all__ = ["Allowance", "Grant", "Inventory", "InventoryItem", "Permit", "Request", "authorize"]
