# SPDX-License-Identifier: Apache-2.0
"""The request to create a TPU, with everything that the grant checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from airflow_tpu.core.catalogue.catalogue import AcceleratorType, Price
from airflow_tpu.core.catalogue.transfer_rates import Rates, StoredSize
from airflow_tpu.core.tpu.identity import KnownAirflow
from airflow_tpu.core.tpu.spec import TPUSpec


@dataclass(frozen=True)
class Request:
    """One request to create a TPU.

    :param spec: the TPU.
    :param accelerator: its type in the catalogue.
    :param planned_end: aware instant by which it will be deleted at the latest.
    :param bucket_locations: location of the bucket behind every ``gs://`` URI of the run, None where unknown.
    :param project_number: number of the project that holds the grant's bucket, None where it may not be read (the
        id alone is compared then).
    :param paid_reason: the line that accepts what is not covered, empty to refuse it.
    :param owner: digest of the run it is for.
    :param airflow: identity of that run's Airflow; room that its other runs use is waited for. Empty: no such wait.
    :param around: digests of the runs that end only after this one: sessions of the DAG run that this one is inside of.
    :param below: size of what is stored below each URI whose bucket is elsewhere, None where it could not be counted.
    :param rates: what a GiB costs between continents; a pair that is missing is unknown.
    :param price: list price of the TPU, None if none is published.
    :param uri_fields: field of the form that each URI stands in.
    :param names: reads what the bucket knows of the others, for a refusal.
    """

    spec: TPUSpec
    accelerator: AcceleratorType
    planned_end: datetime
    bucket_locations: Mapping[str, str | None] = field(default_factory=dict)
    project_number: str | None = None
    paid_reason: str = ""
    owner: str = ""
    airflow: str = ""
    around: frozenset[str] = frozenset()
    below: Mapping[str, StoredSize | None] = field(default_factory=dict)
    rates: Rates = field(default_factory=dict)
    price: Price | None = None
    uri_fields: Mapping[str, str] = field(default_factory=dict)
    names: Callable[[], Mapping[str, KnownAirflow]] = dict

    @property
    def buckets_elsewhere(self) -> Mapping[str, str]:
        """Location, in capitals, of each bucket that is not in the TPU's region, by URI; empty where it is unknown."""
        places = {uri: (location or "").upper() for uri, location in self.bucket_locations.items()}
        return {uri: place for uri, place in places.items() if place != self.spec.region.upper()}

    @property
    def billed_addresses(self) -> int:
        """External addresses of a slice; the one of a single worker is what a laptop needs to reach the TPU."""
        workers = self.accelerator.hosts
        return 0 if workers == 1 or self.spec.internal_ips else workers
