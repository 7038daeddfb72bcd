# SPDX-License-Identifier: Apache-2.0
"""Which TPUs the rows of the grant offer: to a run that leaves its TPU open, and to the capacity search.

The search tries other allowances when a zone has no capacity. Only TPUs that cost nothing more are tried: of a row of
the grant in the data's region (traffic between regions is billed), of a type with as many chips, with an image that
runs on it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_tpu.core.backoff import ExponentialBackoff
from airflow_tpu.core.tpu.spec import Tier, region_of

if TYPE_CHECKING:
    from airflow_tpu.core.catalogue.catalogue import AcceleratorType, Catalogue
    from airflow_tpu.core.grant.allowance import Allowance
    from airflow_tpu.core.grant.grant import Grant
    from airflow_tpu.core.request.run_conf import RunConf

ASKED = ("accelerator_type", "zone", "tier")
"""The fields that one row of the grant fills together."""

_GROWTH = 1.5
_LONGEST_PAUSE = 6.0


@dataclass(frozen=True)
class Alternative:
    """One TPU that the run can use.

    :param zone: where.
    :param accelerator_type: which.
    :param runtime_version: software image for its generation.
    :param tier: how it is bought.
    """

    zone: str
    accelerator_type: str
    runtime_version: str
    tier: Tier

    def __str__(self) -> str:
        return f"{self.tier} {self.accelerator_type} in {self.zone}"

    @classmethod
    def asked(cls, conf: RunConf) -> Alternative:
        """The TPU that the form asks for."""
        return cls(conf.zone, conf.accelerator_type, conf.runtime_version, conf.tier)


@dataclass(frozen=True)
class CapacitySearch:
    """A search for capacity that has not ended yet.

    :param since: when the first create was refused.
    :param rounds: how often all alternatives have been tried.
    :param tried: what has been tried in this round.
    :param in_use: what of it had no room in the grant because of other runs of this Airflow.
    """

    since: dt.datetime
    rounds: int = 0
    tried: tuple[Alternative, ...] = ()
    in_use: tuple[Alternative, ...] = ()

    def after(
        self, refused: Alternative, alternatives: Sequence[Alternative], in_use: bool = False
    ) -> tuple[CapacitySearch, Alternative, bool]:
        """Choose what to request after one more refusal.

        :param refused: what had no capacity.
        :param alternatives: every TPU that the run can use, in the order in which they are tried.
        :param in_use: it had no room in the grant, which other runs of this Airflow use.
        :return: the search so far, the next alternative, and whether to wait before it because all have been tried.
        """
        tried = (*self.tried, refused)
        used = (*(self.in_use if self.tried else ()), *((refused,) if in_use else ()))
        for alternative in alternatives:
            if alternative not in tried:
                return replace(self, tried=tried, in_use=used), alternative, False
        return replace(self, tried=(), rounds=self.rounds + 1, in_use=used), alternatives[0], True

    def pause(self, first: float) -> float:
        """Return the seconds to wait before the next round; they grow to six times the first pause.

        :param first: seconds after the first round.
        """
        return ExponentialBackoff(first, first * _LONGEST_PAUSE, factor=_GROWTH).pause(max(1, self.rounds))


def alternatives(conf: RunConf, grant: Grant, catalogue: Catalogue) -> tuple[Alternative, ...]:
    """The TPU that the form asks for, and with ``on_stock_out: walk`` every other one of the grant in the same region.

    The rows of the grant are taken in their order, the types of a row in the catalogue's, the asked one first.
    """
    asked = Alternative.asked(conf)
    if not conf.searches_capacity:
        return (asked,)
    others = (alternative for row in grant.allowances for alternative in _of_row(row, conf, catalogue))
    return tuple(dict.fromkeys((asked, *others)))


def with_zones_of(grant: Grant, catalogue: Catalogue) -> Catalogue:
    """Return the catalogue in which a zone that the grant names offers the types of its row, price list or not."""
    kinds = catalogue.types.values()
    offers = ((kind.name, row) for row in grant.allowances for kind in kinds if row.is_of(kind.name, kind.generation))
    return catalogue.also_in((name, row.zone) for name, row in offers)


def form_defaults(given: Mapping[str, Any], grant: Grant, catalogue: Catalogue) -> dict[str, str]:
    """Return the fields that the grant fills: its bucket, and the TPU of its first row that fits what is given.

    The form shows them, and a run without a form gets them.

    :param given: the fields that are given, unchecked; they stay as they are.
    :param grant: what may be used for free.
    :param catalogue: what Cloud TPU offers, the zones of the grant included.
    :return: without type, zone and tier if no row fits.
    """
    asked = {name: given[name] for name in ASKED if name in given}
    fitting = (tpu for row in grant.allowances for tpu in _asked_of(row, catalogue) if asked.items() <= tpu.items())
    found = {"artifacts_uri": f"gs://{grant.bucket}/{grant.prefix}/runs", **next(fitting, {})}
    return {name: value for name, value in found.items() if name not in given}


def types_of(row: Allowance, catalogue: Catalogue) -> list[AcceleratorType]:
    """Return the single-worker types that a row covers, in the catalogue's order."""
    kinds = (catalogue.types[name] for name in catalogue.single_host_types())
    return [kind for kind in kinds if row.is_of(kind.name, kind.generation)]


def _asked_of(row: Allowance, catalogue: Catalogue) -> Iterator[dict[str, str]]:
    """Every TPU of one worker that a row covers, as a form asks for it."""
    for kind in types_of(row, catalogue):
        if row.zone in catalogue.zones_of(kind.name):
            yield dict(zip(ASKED, (kind.name, row.zone, str(row.tier)), strict=True))


def _of_row(row: Allowance, conf: RunConf, catalogue: Catalogue) -> Iterator[Alternative]:
    if region_of(row.zone) != region_of(conf.zone):
        return
    asked = catalogue.types[conf.accelerator_type]
    for kind in sorted(types_of(row, catalogue), key=lambda kind: kind.name != asked.name):
        runtime = _runtime(conf.runtime_version, asked, kind, catalogue)
        if kind.chips == asked.chips and row.zone in catalogue.zones_of(kind.name) and runtime:
            yield Alternative(row.zone, kind.name, runtime, row.tier)


def _runtime(wanted: str, asked: AcceleratorType, kind: AcceleratorType, catalogue: Catalogue) -> str:
    """Return the wanted image if it runs on the type; for a default image that type's default; else none."""
    if wanted in catalogue.runtime_versions(kind.generation):
        return wanted
    return kind.default_runtime if wanted == asked.default_runtime else ""
