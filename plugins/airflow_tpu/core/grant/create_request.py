"""The request to create a TPU, with everything that the grant checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from airflow_tpu.core.catalogue.catalogue import AcceleratorType
from airflow_tpu.core.catalogue.transfer_rates import Rates, StoredSize
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
    :param paid_reason: why it may cost money, empty to refuse what is not covered.
    :param owner: digest of the run it is for.
    :param below: size of what is stored below each URI whose bucket is elsewhere, None where it could not be counted.
    :param rates: what a GiB costs between continents; a pair that is missing is unknown.
    """

    spec: TPUSpec
    accelerator: AcceleratorType
    planned_end: datetime
    bucket_locations: Mapping[str, str | None] = field(default_factory=dict)
    project_number: str | None = None
    paid_reason: str = ""
    owner: str = ""
    below: Mapping[str, StoredSize | None] = field(default_factory=dict)
    rates: Rates = field(default_factory=dict)
