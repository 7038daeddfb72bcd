# SPDX-License-Identifier: Apache-2.0
"""``catalogue check``: compare what the form offers with what Cloud TPU offers."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from airflow_tpu.cli.cloud import CONNECTION, reached
from airflow_tpu.cli.verbs import DONE, REFUSED, Group, Verb, option, say
from airflow_tpu.core.catalogue.check import differences, served_zones
from airflow_tpu.errors import TPUError

if TYPE_CHECKING:
    from airflow_tpu.clients.tpu_api import TPUClient
    from airflow_tpu.core.catalogue.catalogue import Catalogue


def check(args: argparse.Namespace) -> int:
    """Ask every zone of the catalogue what it offers and print each difference."""
    from airflow_tpu.stores.grants import load_catalogue

    catalogue = load_catalogue()
    zones = args.zone or served_zones(catalogue)
    with reached():
        from airflow_tpu.hooks.tpu import CloudTPUHook

        warnings = CloudTPUHook(args.gcp_conn_id).run(lambda client: _ask(client, catalogue, zones))
    for warning in warnings:
        say(warning)
    say(f"{len(zones)} zone(s) asked, {len(warnings)} difference(s)")
    return REFUSED if warnings else DONE


async def _ask(client: TPUClient, catalogue: Catalogue, zones: list[str]) -> list[str]:
    from airflow_tpu.clients.tpu_api import offered

    warnings = []
    for zone in zones:
        try:
            types, versions = await offered(client, zone)
        except TPUError as error:
            warnings.append(f"{zone} did not answer: {error}")
        else:
            warnings += differences(catalogue, zone, types, versions)
    return warnings


GROUP = Group(
    "catalogue",
    "types, zones and runtime versions of include/catalogue",
    (
        Verb(
            "check",
            "compare the catalogue with the lists of the Cloud TPU API",
            (option("--zone", action="append", help="ask this zone only (may be repeated)"), CONNECTION),
            check,
        ),
    ),
)
