# SPDX-License-Identifier: Apache-2.0
"""What the addresses of workers cost by the hour, the grant or not."""

from __future__ import annotations

from decimal import Decimal

from airflow_tpu.core.tpu.spec import Tier

# USD for one external IPv4 address and hour: https://cloud.google.com/vpc/network-pricing, read 2026-10-16.
ADDRESS_USD = {Tier.ON_DEMAND: Decimal("0.005"), Tier.SPOT: Decimal("0.0025")}
ADDRESS_SOURCE = "Google network pricing, 2026-10-16"
# USD for one VM and hour behind Cloud NAT; each GiB and each address of the gateway come on top. Same page and day.
NAT_USD = Decimal("0.0014")
