# SPDX-License-Identifier: Apache-2.0
"""What all parts of the state machine share: settings, clock, randomness, faults and VMs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Protocol, TypeVar

from google.protobuf.timestamp_pb2 import Timestamp

from localcloud.faults import FaultRegistry
from localcloud.rules import errors
from localcloud.rules.catalogue import Catalogue
from localcloud.rules.names import ResourceName
from localcloud.rules.settings import Latencies, Settings
from localcloud.timeline import Timeline
from localcloud.tpu_state.machines import Machines


class Placed(Protocol):
    """What is in a zone: a node, a queued resource."""

    where: ResourceName


P = TypeVar("P", bound=Placed)


def seeded_random(seed: int) -> Random:
    """Return the random source of one cloud: the same seed gives the same history."""
    return Random(seed)  # noqa: S311 - it makes names and preemptions, no secrets, and must repeat


@dataclass
class Backend:
    """What nodes, queued resources and operations run on.

    :param settings: project, limits, latencies.
    :param catalogue: types, zones, runtime versions.
    :param timeline: the clock and everything that happens later.
    :param rng: the only random source.
    :param faults: scripted faults.
    :param machines: the TPU VMs.
    :ivar unreachable: zones that are away: lists name them, every other call into them is UNAVAILABLE.
    """

    settings: Settings
    catalogue: Catalogue
    timeline: Timeline
    rng: Random
    faults: FaultRegistry
    machines: Machines
    unreachable: set[str] = field(default_factory=set)

    @property
    def latencies(self) -> Latencies:
        """How long things take."""
        return self.settings.latencies

    def locate(self, name: str, collection: str = "", *, wildcard: bool = False) -> ResourceName:
        """Take a resource name apart and admit its project and zone; the project comes back as its id.

        :param wildcard: whether ``-`` is allowed as the zone.
        :raises CloudError: INVALID_ARGUMENT for a malformed name, PERMISSION_DENIED for a strange project or zone or
            by the rules of the project.
        """
        parsed = ResourceName.parse(name, collection)
        settings = self.settings
        if parsed.project not in {settings.project_id, settings.project_number}:
            raise errors.project_denied(parsed.project)
        settings.project.admit(settings.project_number)
        if not (wildcard and parsed.zone == "-") and parsed.zone not in self.open_zones():
            raise errors.zone_denied(parsed.zone)
        return ResourceName(settings.project_id, parsed.zone, parsed.collection, parsed.id)

    def open_zones(self) -> list[str]:
        """Return the zones the project is admitted to, sorted."""
        return [zone for zone in self.catalogue.zones if zone not in self.settings.closed_zones]

    def visible(self, records: Iterable[P], parent: str, method: str) -> tuple[list[P], list[str]]:
        """Return the records of a zone, or with ``-`` those of all zones, and the zones that do not answer.

        :param parent: the location that was asked for.
        :param method: the list call, for faults.
        :raises CloudError: INVALID_ARGUMENT or PERMISSION_DENIED.
        """
        zones, silent = self.answering_zones(self.locate(parent, wildcard=True).zone, method)
        return [record for record in records if record.where.zone in zones], silent

    def answering_zones(self, zone: str, method: str) -> tuple[list[str], list[str]]:
        """Return, for a zone or ``-``, the zones that answer a list call and those that do not."""
        zones = self.open_zones() if zone == "-" else [zone]
        silent = [one for one in zones if self._is_silent(one, method)]
        return [one for one in zones if one not in silent], silent

    def _is_silent(self, zone: str, method: str) -> bool:
        return zone in self.unreachable or self.faults.take("tpu.zone", zone=zone, method=method) is not None

    def now(self) -> datetime:
        """Return the wall time of the cloud."""
        return self.timeline.clock.now()

    def stamp(self) -> Timestamp:
        """Return the wall time of the cloud as a protobuf message."""
        stamp = Timestamp()
        stamp.FromDatetime(self.now())
        return stamp

    def later(self, seconds: float, callback: Callable[[], None]) -> None:
        """Run a callback in ``seconds``."""
        self.timeline.after(seconds, callback)
