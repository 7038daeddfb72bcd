# SPDX-License-Identifier: Apache-2.0
"""The ledger against Google's own log of creates and deletes."""

from __future__ import annotations

import json
from datetime import date, timedelta
from typing import Any

import pytest

from airflow_tpu.core.ledger.audit_log import AuditEntry, read_entries
from airflow_tpu.core.ledger.events import Closed, EndReason, Opened, TimeSource
from airflow_tpu.core.ledger.ledger_filter import LedgerFilter
from airflow_tpu.core.ledger.reconcile import reconcile
from airflow_tpu.core.tpu.resource_name import ResourceName
from airflow_tpu.errors import ConfigError
from tests.airflow_tpu.core.made_ledger import ASKED, NODE, closed, opened

PLACE = "projects/my-project/locations/us-central1-f"
MINUTE = timedelta(minutes=1)
EVERYTHING = LedgerFilter()


def logged(
    verb: str, minutes: float, node_id: str = NODE, version: str = "v2", mark: str = "first", **more: Any
) -> dict[str, Any]:
    """An entry as ``gcloud logging read --format=json`` prints it, so many minutes after the request.

    :param verb: ``CreateNode`` and the like.
    :param mark: ``first`` or ``last`` of its operation.
    """
    collection = "queuedResources" if "Queued" in verb else "nodes"
    payload = {
        "@type": "type.googleapis.com/google.cloud.audit.AuditLog",
        "methodName": f"google.cloud.tpu.{version}.Tpu.{verb}",
        "resourceName": f"{PLACE}/{collection}/{node_id}",
        "serviceName": "tpu.googleapis.com",
        "authenticationInfo": {"principalEmail": "anna@example.com"},
        **more,
    }
    at = (ASKED + minutes * MINUTE).isoformat().replace("+00:00", "Z")
    return {"timestamp": at, "protoPayload": payload, "operation": {"id": f"{verb} {node_id}", mark: True}}


LIFE = [
    logged("CreateNode", 0.1),
    logged("CreateNode", 5, mark="last"),
    logged("DeleteNode", 95),
    logged("DeleteNode", 96, mark="last"),
]
EVENTS: list[Opened | Closed] = [opened(), closed()]


def differences(
    entries: list[dict[str, Any]], events: list[Opened | Closed], wanted: LedgerFilter = EVERYTHING
) -> list[str]:
    """What is found, in words."""
    return [str(found) for found in reconcile(events, read_entries(json.dumps(entries)), wanted)]


def test_a_life_that_both_tell_alike_is_no_difference() -> None:
    """Request and create, end and delete are seconds apart."""
    assert differences(LIFE, EVENTS) == []


@pytest.mark.parametrize("version", ["v1", "v2", "v2alpha1"])
@pytest.mark.parametrize("kind", ["Node", "QueuedResource"])
def test_every_version_and_kind_is_understood(version: str, kind: str) -> None:
    """Nodes and queued resources, by whatever version of the API they were asked for."""
    entries = [logged(f"{verb}{kind}", minutes, version=version) for verb, minutes in (("Create", 0), ("Delete", 95))]
    assert differences(entries, EVENTS) == []
    assert differences(entries, []) == [
        f"{NODE}: created by anna@example.com, not in the ledger, deleted 2026-11-27 13:35:00 UTC "
        "(log 2026-11-27 12:00:00 UTC)"
    ]


def test_a_create_may_name_its_parent() -> None:
    """Where the log has only the parent, the id is in the request."""
    entry = logged("CreateQueuedResource", 0, resourceName=PLACE, request={"queuedResourceId": NODE})
    assert differences([entry, *LIFE[2:]], EVENTS) == []


@pytest.mark.parametrize(
    ("entries", "events", "found"),
    [
        (LIFE[2:], EVENTS, "in the ledger, no create in the log (ledger 2026-11-27 12:00:00 UTC)"),
        (LIFE[:2], EVENTS, "ended in the ledger, no delete in the log: is it alive? (ledger 2026-11-27 13:35:00 UTC)"),
        (LIFE, [opened()], "deleted, and without an end in the ledger (log 2026-11-27 13:35:00 UTC)"),
        (
            LIFE,
            [opened(), closed(minutes=80)],
            "ledger and log differ on the time of the end "
            "(ledger 2026-11-27 13:25:00 UTC, log 2026-11-27 13:35:00 UTC, -600 s)",
        ),
        (
            LIFE,
            [opened(), closed(minutes=100)],
            "ledger and log differ on the time of the end "
            "(ledger 2026-11-27 13:45:00 UTC, log 2026-11-27 13:36:00 UTC, +540 s)",
        ),
        (
            LIFE,
            [opened(requested_at=ASKED - 2 * MINUTE), closed()],
            "ledger and log differ on the time of the create "
            "(ledger 2026-11-27 11:58:00 UTC, log 2026-11-27 12:00:06 UTC, -126 s)",
        ),
    ],
)
def test_each_difference_is_named(entries: list[dict[str, Any]], events: list[Opened | Closed], found: str) -> None:
    """In both directions, with both times and how far they are apart."""
    assert differences(entries, events) == [f"{NODE}: {found}"]


def test_a_preemption_ends_before_the_delete() -> None:
    """Google takes the TPU at minute 45, a person deletes what is left at minute 95: both records are right."""
    assert differences(LIFE, [opened(), closed(minutes=40, reason=EndReason.PREEMPTED)]) == []
    assert differences(LIFE[:2], [opened(), closed(minutes=40, reason=EndReason.PREEMPTED)]) == []


def test_what_never_came_is_no_difference() -> None:
    """The ledger is written before the call: it may never have been made, or have been refused."""
    never: list[Opened | Closed] = [opened(), Closed(NODE, None, None, EndReason.NEVER_READY)]
    refused = logged("CreateNode", 0, status={"code": 8, "message": "no more capacity"})
    assert differences([], never) == []
    assert differences([refused], never) == []
    assert differences([refused], []) == []
    assert differences([refused], EVENTS) == [
        f"{NODE}: in the ledger, its create was refused: no more capacity (code 8) (ledger 2026-11-27 12:00:00 UTC)"
    ]


UNSEEN = Closed(NODE, None, None, EndReason.NEVER_READY, TimeSource.OBSERVED)
NEVER = Closed(NODE, None, None, EndReason.NEVER_READY, TimeSource.API)
QUEUED = [logged("CreateQueuedResource", 0), logged("CreateQueuedResource", 0.1, mark="last")]
QUEUED_END = logged("DeleteQueuedResource", 95)


@pytest.mark.parametrize("end", [UNSEEN, NEVER])
def test_ready_in_the_log_and_never_in_the_ledger(end: Closed) -> None:
    """A node whose create ended well was charged until its delete: 0 hours in the ledger are a difference."""
    assert differences(LIFE, [opened(), end]) == [
        f"{NODE}: never READY in the ledger, READY in the log, deleted 2026-11-27 13:35:00 UTC "
        "(log 2026-11-27 12:05:00 UTC)"
    ]
    assert "is it alive?" in differences(LIFE[:2], [opened(), end])[0]


def test_a_queued_resource_of_which_nothing_was_known() -> None:
    """The log does not say when a queued resource got its TPU: 0 hours that nobody saw are a difference."""
    (found,) = differences([*QUEUED, QUEUED_END], [opened(), UNSEEN])
    assert "0 hours in the ledger, though nothing told that it never came; deleted 2026-11-27 13:35:00 UTC" in found
    assert differences([*QUEUED, QUEUED_END], [opened(), NEVER]) == []


def test_a_create_that_failed_later_never_came() -> None:
    """An operation that ended with an error, and a node deleted on its way, were never READY."""
    failed = logged("CreateNode", 1, mark="last", status={"code": 8, "message": "no more capacity"})
    for end in (UNSEEN, NEVER):
        assert differences([LIFE[0], failed], [opened(), end]) == []
    assert differences([LIFE[0], logged("DeleteNode", 4.5), LIFE[1], LIFE[3]], [opened(), NEVER]) == []


def test_days_and_runs_are_chosen_on_both_sides() -> None:
    """What was created on other days is left out; with a run only the ledger's side can be asked for."""
    entries = [*LIFE, logged("CreateNode", 60 * 24, "annas")]
    today = LedgerFilter(begin=date(2026, 11, 27), end=date(2026, 11, 27))
    assert len(differences(entries, EVENTS)) == 1
    assert differences(entries, EVENTS, today) == []
    assert differences(entries, EVENTS, LedgerFilter(run="manual__1")) == []
    assert differences(entries, [opened("b", dag_id="x")], LedgerFilter(dag="y")) == []


def test_the_tolerance_is_the_caller_s() -> None:
    """With a tolerance of one second, six seconds apart are a difference."""
    found = reconcile(EVENTS, read_entries(json.dumps(LIFE)), EVERYTHING, timedelta(seconds=1))
    assert [difference.delta for difference in found] == [timedelta(seconds=-6)]


def test_json_lines_and_lists_are_the_same() -> None:
    """As gcloud prints it, and as a sink writes it; what is about something else is left out."""
    other = {"timestamp": "2026-11-27T12:00:00Z", "protoPayload": {"methodName": "storage.buckets.create"}}
    lines = "\n".join(json.dumps(data) for data in [*reversed(LIFE), other, {"textPayload": "hello"}])
    found = read_entries(lines)
    assert found == read_entries(json.dumps([other, *LIFE]))
    assert found[0] == AuditEntry(
        ASKED + 0.1 * MINUTE,
        ResourceName.parse(f"{PLACE}/nodes/{NODE}"),
        True,
        False,
        "",
        f"CreateNode {NODE}",
        "anna@example.com",
    )
    assert read_entries("") == read_entries("[]") == []


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1]",
        "hello",
        json.dumps([{**LIFE[0], "timestamp": "yesterday"}]),
        json.dumps([{**LIFE[0], "timestamp": "2026-11-27T12:00:00"}]),
        json.dumps([{"protoPayload": LIFE[0]["protoPayload"]}]),
        json.dumps([logged("CreateNode", 0, resourceName=PLACE)]),
        json.dumps([logged("CreateNode", 0, resourceName=PLACE, request={})]),
        json.dumps([logged("CreateNode", 0, resourceName="of/nodes/of")]),
    ],
)
def test_a_damaged_export_is_refused(text: str) -> None:
    """Half a log compared would find differences that are none."""
    with pytest.raises(ConfigError, match="audit log"):
        read_entries(text)
