# SPDX-License-Identifier: Apache-2.0
"""Faults as scripted data: where, when and how often something goes wrong.

A fault waits at a *point* (a named place in the local cloud) for attributes that match, is used up one event after
the other, and reports at the end how often it was used: a test whose fault never struck has proved nothing.

===================  ===========================  ================================================================
point                attributes                   params
===================  ===========================  ================================================================
``tpu.call``         method, name, transport      action: error (code, message, reason, metadata, retry_after) |
                                                  lose-response | delay (seconds) | hang
``tpu.operation``    verb, target                 action: error (code, message, after) | never | slow (seconds) |
                                                  forget; resource: proceeds | undone | stuck | late
``tpu.zone``         zone, method                 action: unreachable (a list names the zone)
``tpu.list``         event (create, delete), name seconds that lists lag, see :mod:`localcloud.tpu_api.stale_lists`
``node.timeline``    node, zone                   see :mod:`localcloud.tpu_state.nodes.faults`
``queued.timeline``  queued, zone                 see :mod:`localcloud.tpu_state.queued.provisioning`
``vm.ssh``           node, zone, worker           see :mod:`localcloud.vm.ssh_faults`
``iam.test``         permission, project          none: the account lacks the permission
``gcs.request``      method, bucket, object, op   action: 503 | 429 | 403 | refuse (status, reason, message) | abort |
                                                  lose-response | delay
===================  ===========================  ================================================================

``transport`` is ``grpc``, or ``rest``, over which a TPU VM deletes itself: code 7 there means that its service account
may not.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

POINTS = frozenset(
    {
        *("tpu.call", "tpu.operation", "tpu.zone", "tpu.list", "node.timeline", "queued.timeline", "vm.ssh"),
        *("iam.test", "gcs.request"),
    }
)
_KEYS = frozenset({"id", "point", "match", "times", "after", "every", "params"})


class FaultSpecError(ValueError):
    """A fault was written in a way that could never strike; the message lists every fault of the fault."""


@dataclass(frozen=True)
class Fault:
    """One scripted fault.

    :param id: its name in reports.
    :param point: where it waits; one of :data:`POINTS`.
    :param match: attribute name to pattern (``fnmatch``, case matters); an attribute not named matches anything.
    :param times: how many matching events it spoils.
    :param after: how many matching events it lets pass first.
    :param every: of the matching events after that, it spoils one in so many: 10 is ten per cent.
    :param params: what it does; the point defines the keys.
    """

    id: str
    point: str
    match: Mapping[str, str]
    times: int
    after: int
    params: Mapping[str, Any]
    every: int = 1

    def matches(self, point: str, attributes: Mapping[str, str]) -> bool:
        """Return whether this fault concerns an event at ``point`` with these attributes."""
        if point != self.point:
            return False
        return all(fnmatchcase(attributes.get(name, ""), pattern) for name, pattern in self.match.items())

    @classmethod
    def parse(cls, spec: Mapping[str, Any], default_id: str) -> Fault:
        """Read the JSON form.

        :raises FaultSpecError: with every mistake in it.
        """
        problems = _problems(spec)
        if problems:
            raise FaultSpecError("; ".join(problems))
        match = {str(name): str(pattern) for name, pattern in spec.get("match", {}).items()}
        params = dict(spec.get("params", {}))
        name, counts = str(spec.get("id", default_id)), (spec.get("times", 1), spec.get("after", 0))
        return cls(name, spec["point"], match, *counts, params, spec.get("every", 1))


def _problems(spec: Mapping[str, Any]) -> list[str]:
    found = [f"unknown key {key!r} (known: {', '.join(sorted(_KEYS))})" for key in sorted(set(spec) - _KEYS)]
    if spec.get("point") not in POINTS:
        found.append(f"unknown point {spec.get('point')!r} (known: {', '.join(sorted(POINTS))})")
    for key, least in (("times", 1), ("after", 0), ("every", 1)):
        value = spec.get(key, least)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            found.append(f"{key} must be a whole number of at least {least}, got {value!r}")
    for key in ("match", "params"):
        if not isinstance(spec.get(key, {}), Mapping):
            found.append(f"{key} must be an object, got {spec[key]!r}")
    return found


@dataclass
class _Entry:
    fault: Fault
    seen: int = 0
    used: int = 0

    def strikes(self, point: str, attributes: Mapping[str, str]) -> bool:
        """Count this event if it concerns the fault, and return whether the fault spoils it."""
        if self.used >= self.fault.times or not self.fault.matches(point, attributes):
            return False
        self.seen += 1
        late = self.seen - self.fault.after
        if late <= 0 or late % self.fault.every:
            return False
        self.used += 1
        return True


class FaultRegistry:
    """All faults of one local cloud; safe to use from several threads (the storage server and tests share it)."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self._lock = threading.Lock()

    def add(self, spec: Mapping[str, Any]) -> str:
        """Add one fault from its JSON form and return its id.

        :raises FaultSpecError: if the spec is malformed or its id is taken.
        """
        with self._lock:
            fault = Fault.parse(spec, f"fault-{len(self._entries) + 1}")
            if any(entry.fault.id == fault.id for entry in self._entries):
                raise FaultSpecError(f"a fault with id {fault.id!r} exists already")
            self._entries.append(_Entry(fault))
            return fault.id

    def take(self, point: str, **attributes: str) -> Fault | None:
        """Return the first live fault that concerns this event and use it once, or ``None``.

        A matching fault that still has events to let pass counts this one and steps aside for the next fault.
        """
        with self._lock:
            return next((entry.fault for entry in self._entries if entry.strikes(point, attributes)), None)

    def take_all(self, point: str, **attributes: str) -> list[Fault]:
        """Return every live fault that concerns this event and use each of them once."""
        with self._lock:
            return [entry.fault for entry in self._entries if entry.strikes(point, attributes)]

    def report(self) -> list[dict[str, Any]]:
        """Return one row per fault: ``id``, ``point``, ``times``, ``used``."""
        with self._lock:
            return [
                {"id": entry.fault.id, "point": entry.fault.point, "times": entry.fault.times, "used": entry.used}
                for entry in self._entries
            ]

    def unused(self) -> list[str]:
        """Return the ids of the faults that are not wholly used up."""
        return [row["id"] for row in self.report() if row["used"] < row["times"]]

    def clear(self) -> None:
        """Forget every fault."""
        with self._lock:
            self._entries.clear()
