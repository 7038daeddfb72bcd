# SPDX-License-Identifier: Apache-2.0
"""Quota: how much of what a project may hold, by generation, tier and zone, in Google's names and texts.

Quota is held by everything that exists: nodes in any state, preempted ones included, and queued resources in any
state, FAILED and SUSPENDED included (https://github.com/marin-community/marin/issues/87).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from localcloud.rules import errors
from localcloud.rules.catalogue import AcceleratorType


@dataclass(frozen=True)
class Demand:
    """What one node or request holds.

    :param kind: accelerator type.
    :param preemptible: spot and preemptible draw on one pool, on-demand on another.
    :param zone: where.
    :param count: how many nodes of the type.
    """

    kind: AcceleratorType
    preemptible: bool
    zone: str
    count: int = 1

    @property
    def units(self) -> int:
        """TensorCores or chips, see :attr:`AcceleratorType.quota_units`."""
        return self.kind.quota_units * self.count

    def metric(self, scope: str) -> str:
        """Return the name of the quota; ``scope`` is ``Zone`` or ``Region``."""
        name = self.kind.quota.replace("*", "Preemptible" if self.preemptible else "")
        return f"{name}PerProjectPer{scope}ForTPUAPI"

    @property
    def region(self) -> str:
        """The region of the zone."""
        return self.zone.rpartition("-")[0]


class Quota:
    """The limits of one project.

    :param limits: limit by ``METRIC@zone`` or ``METRIC@region``.
    :param default: limit of a zonal metric without an entry; regional ones without an entry do not exist.
    """

    def __init__(self, limits: Mapping[str, int], default: int) -> None:
        self.limits = dict(limits)
        self.default = default

    def check(self, wanted: Demand, held: Iterable[Demand]) -> None:
        """Let a demand pass that fits beside what is held; the regional limit counts as well as the zonal one.

        :raises CloudError: RESOURCE_EXHAUSTED, naming the metric, the limit and the place.
        """
        holders = list(held)
        for scope, place in (("Zone", wanted.zone), ("Region", wanted.region)):
            metric = wanted.metric(scope)
            limit = self.limits.get(f"{metric}@{place}", self.default if scope == "Zone" else None)
            if limit is not None and self.used(metric, scope, place, holders) + wanted.units > limit:
                raise errors.quota_exceeded(metric, limit, f"{scope.lower()} {place}")

    def used(self, metric: str, scope: str, place: str, held: Iterable[Demand]) -> int:
        """Return how many units of a metric are held in a place."""
        return sum(
            demand.units
            for demand in held
            if demand.metric(scope) == metric and place == (demand.zone if scope == "Zone" else demand.region)
        )
