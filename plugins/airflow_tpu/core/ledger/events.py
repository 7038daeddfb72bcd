# SPDX-License-Identifier: Apache-2.0
"""The ledger's two events: a TPU's incarnation was opened, and it was closed.

Each is one immutable object in the bucket, at a path derived from the node id, so that a task which is tried
again writes the same object and nothing is counted twice. An opened event is written *before* the create call:
an incarnation without a closed event is the reaper's work list.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow_tpu.core import json_form
from airflow_tpu.core.tpu.spec import Tier
from airflow_tpu.errors import DamagedObject

ROOT = "ledger/incarnations"


class EndReason(enum.StrEnum):
    """Why an incarnation ended."""

    FINISHED = "finished"
    PREEMPTED = "preempted"
    FAILED = "failed"
    DELETED = "deleted"
    VANISHED = "vanished"
    STOPPED = "stopped"
    NEVER_READY = "never-ready"


class TimeSource(enum.StrEnum):
    """Whose clock gave the times: the API's, or ours when we noticed the change."""

    API = "api"
    OBSERVED = "observed"


@dataclass(frozen=True)
class Transfer:
    """A bucket of a run that is not known to be in the TPU's region, so that transfers are billed.

    :param uri: as the run names it.
    :param location: of its bucket, in capitals; empty if it may not be read.
    :param outward: True if the TPU writes there, False if it reads.
    :param size: bytes below the URI when the TPU was requested, None if not all of them were counted.
    """

    uri: str
    location: str
    outward: bool
    size: int | None = None


@dataclass(frozen=True)
class GrantTerm:
    """The grant as it was when a TPU was requested: what decides which of its hours are free.

    :param begins_at: aware instant from which it covers.
    :param ends_at: aware instant from which nothing is covered.
    :param rows: its allowances, as their texts.
    """

    begins_at: datetime
    ends_at: datetime
    rows: tuple[str, ...]


@dataclass(frozen=True)
class Opened:
    """A TPU is about to be requested.

    :param node_id: id of the incarnation, which is the node's.
    :param run: digest of the run, see :class:`airflow_tpu.core.tpu.labels.RunKey`.
    :param chips: chips requested.
    :param provisioning: ``queued-resource`` or ``node``.
    :param external_ips: number of external IPv4 addresses it will hold, one per worker, or 0.
    :param allowance: the row of the grant that covers it, None when none does.
    :param paid_reason: reason given for a TPU that is not free, empty when it is covered.
    :param requested_at: aware instant just before the call.
    :param transfers: its buckets in other regions; None in a record from before they were recorded.
    :param term: the grant at that instant, None if nothing was noted of it.
    :param dag_run: digest that all sessions of the DAG run share.
    :param session: name of the session, empty for the one without a name.
    :param commit: of the repository that the project of the run is in, empty without one.
    :param airflow: identity of the Airflow whose run it is, empty in a record from before it was recorded.
    """

    node_id: str
    run: str
    dag_id: str
    run_id: str
    project: str
    zone: str
    accelerator_type: str
    chips: int
    tier: Tier
    provisioning: str
    external_ips: int
    allowance: str | None
    paid_reason: str
    requested_at: datetime
    transfers: tuple[Transfer, ...] | None = None
    term: GrantTerm | None = None
    dag_run: str = ""
    session: str = ""
    commit: str = ""
    airflow: str = ""

    @property
    def path(self) -> str:
        """Object path below the grant's prefix."""
        return opened_path(self.node_id)

    @property
    def closed_path(self) -> str:
        """Object path of its end."""
        return closed_path(self.node_id)


@dataclass(frozen=True)
class Closed:
    """An incarnation has ended.

    :param node_id: id of the incarnation.
    :param ready_at: when the TPU became READY, None if it never did.
    :param ended_at: when it was gone or taken away, None only if it never became READY.
    :param time_source: whose clock gave the two times.
    :param training_seconds: how long the script ran on it.
    :param artifact_bytes: bytes it wrote to the bucket.
    :param lost_seconds: training since the newest checkpoint that was safe when it was taken away, which the next
        incarnation has to do again; 0 if it ended in order, None if unknown.
    :raises ValueError: if it was READY and has no end.
    """

    node_id: str
    ready_at: datetime | None
    ended_at: datetime | None
    end_reason: EndReason
    time_source: TimeSource = TimeSource.API
    training_seconds: float = 0.0
    artifact_bytes: int = 0
    lost_seconds: float | None = 0.0

    def __post_init__(self) -> None:
        if self.ready_at is not None and self.ended_at is None:
            raise ValueError(f"{self.node_id} was READY and has no end")

    @property
    def path(self) -> str:
        """Object path below the grant's prefix."""
        return closed_path(self.node_id)


OPENED_FORM = json_form.StoredForm("ledger event", Opened, tags={"event": "opened"})
CLOSED_FORM = json_form.StoredForm("ledger event", Closed, tags={"event": "closed"})


def opened_path(node_id: str) -> str:
    """Path of an incarnation's opened event below the grant's prefix."""
    return f"{ROOT}/{node_id}/opened.json"


def closed_path(node_id: str) -> str:
    """Path of an incarnation's closed event below the grant's prefix."""
    return f"{ROOT}/{node_id}/closed.json"


def is_event(path: str) -> bool:
    """Whether an object is one of the two of an incarnation, by its path; what else a person has put there is not."""
    return path.endswith(("/opened.json", "/closed.json"))


def node_id_of(path: str) -> str:
    """Incarnation that an event's object is about, by its path."""
    return path.rsplit("/", 2)[-2]


def event_to_json(event: Opened | Closed) -> dict[str, Any]:
    """Content of an event's object, as plain JSON."""
    return OPENED_FORM.to_json(event) if isinstance(event, Opened) else CLOSED_FORM.to_json(event)


def event_to_bytes(event: Opened | Closed) -> bytes:
    """Content of an event's object; equal events have equal bytes."""
    return json_form.encode(event_to_json(event))


def event_from_bytes(content: bytes | str, name: str = "") -> Opened | Closed:
    """Read either event from an object's content.

    :param name: of the object.
    :raises UnknownVersion: another release has written it.
    :raises DamagedObject: it is neither event.
    """
    try:
        data = json.loads(content)
    except ValueError as error:
        raise DamagedObject(f"the ledger event {name} is damaged ({error}): {str(content)[:200]}") from error
    return event_from_json(data, name)


def event_from_json(data: object, name: str = "") -> Opened | Closed:
    """Read either event from its JSON form.

    :param name: of the object.
    :raises UnknownVersion: another release has written it.
    :raises DamagedObject: it is neither event.
    """
    is_opened = isinstance(data, Mapping) and data.get("event") == OPENED_FORM.tags["event"]
    return OPENED_FORM.from_json(data, name) if is_opened else CLOSED_FORM.from_json(data, name)


def event_at(data: object, name: str) -> Opened | Closed:
    """Read either event from the JSON form of the object at its place.

    :param name: path of the object: a copy of an event elsewhere would be counted twice.
    :raises UnknownVersion: another release has written it.
    :raises DamagedObject: it is neither event, or another incarnation's.
    """
    event = event_from_json(data, name)
    if not name.endswith(event.path):
        raise DamagedObject(f"the ledger event {name} is damaged (it is a copy of {event.path})")
    return event
