# SPDX-License-Identifier: Apache-2.0
"""The billing meter: every READY second of every node, independent of any code under test.

Google charges a Cloud TPU while its node is READY. Tests compare a product's own ledger with what is counted here.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from google.cloud.tpu_v2.types import Node

from localcloud.clock import Clock
from localcloud.tpu_state.call_log import CallLog
from localcloud.tpu_state.nodes.registry import Transition

_HOUR = 3600.0


@dataclass
class Interval:
    """One stretch of time in READY; ``end`` is ``None`` while it lasts.

    ``began`` and ``ended`` are the same instants on the monotonic scale, from which the seconds are taken.
    """

    start: datetime
    began: float
    end: datetime | None = None
    ended: float | None = None

    def seconds(self, now: float) -> float:
        """Return how long it lasted, or has lasted so far: ``now`` is on the monotonic scale."""
        return (now if self.ended is None else self.ended) - self.began


@dataclass
class Bill:
    """What one life of one node has used.

    :ivar uid: the node's numeric id: the key, since names are used again.
    :ivar gone: whether the node has been deleted.
    """

    uid: int
    name: str
    zone: str
    accelerator_type: str
    chips: int
    tier: str
    queued_resource: str
    labels: dict[str, str]
    ready: list[Interval]
    gone: bool = False

    def row(self, now: float) -> dict[str, Any]:
        """Return the JSON form; ``now`` is on the monotonic scale."""
        seconds = sum(interval.seconds(now) for interval in self.ready)
        spans = [
            {"start": span.start.isoformat(), "end": span.end.isoformat() if span.end else None} for span in self.ready
        ]
        fields = {key: value for key, value in vars(self).items() if key != "ready"}
        return {**fields, "ready": spans, "ready_seconds": seconds, "chip_hours": seconds * self.chips / _HOUR}


class Meter:
    """Counts READY seconds per node; listens to the nodes' transitions.

    :param clock: the cloud's clock, so that virtual hours cost virtual hours.
    :ivar calls: the calls of the API.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bills: dict[int, Bill] = {}
        self.calls = CallLog()

    def observe(self, transition: Transition) -> None:
        """Record a transition: READY opens an interval, anything else closes it."""
        bill = self._bill(transition)
        running = bill.ready[-1] if bill.ready and bill.ready[-1].end is None else None
        if transition.new == Node.State.READY and running is None:
            bill.ready.append(Interval(transition.at, transition.seconds))
        elif transition.new != Node.State.READY and running is not None:
            running.end = transition.at
            running.ended = transition.seconds
        bill.gone = transition.new is None

    def _bill(self, transition: Transition) -> Bill:
        record = transition.record
        if record.uid not in self._bills:
            self._bills[record.uid] = Bill(
                uid=record.uid,
                name=record.name,
                zone=record.where.zone,
                accelerator_type=record.kind.name,
                chips=record.kind.chips,
                tier=record.tier,
                queued_resource=record.queued,
                labels=record.labels,
                ready=[],
            )
        return self._bills[record.uid]

    def ready_seconds(self, name: str = "") -> float:
        """Return the READY seconds of every life of a node, or of all nodes, up to now.

        :param name: full node name or its id.
        """
        now = self._clock.monotonic()
        bills = [bill for bill in self._bills.values() if not name or name in {bill.name, bill.name.rpartition("/")[2]}]
        return sum(interval.seconds(now) for bill in bills for interval in bill.ready)

    def dump(self, *, calls: bool = False) -> dict[str, Any]:
        """Return the JSON form: one row per life of a node, totals, and how often each method was called.

        :param calls: include the latest calls one by one.
        """
        now = self._clock.monotonic()
        rows = [bill.row(now) for bill in self._bills.values()]
        answer: dict[str, Any] = {
            "at": self._clock.now().isoformat(),
            "nodes": rows,
            "ready_seconds": sum(row["ready_seconds"] for row in rows),
            "chip_hours": sum(row["chip_hours"] for row in rows),
            "calls": dict(self.calls.counts),
        }
        if calls:
            answer["audit"] = [asdict(call) for call in self.calls.latest]
        return answer
