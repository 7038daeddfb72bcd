# SPDX-License-Identifier: Apache-2.0
"""The object that holds the ended incarnations of a month."""

from __future__ import annotations

import json
from datetime import timedelta
from itertools import count

from hypothesis import given

from airflow_tpu.core.ledger.events import Closed, Opened
from airflow_tpu.core.ledger.month_archive import ARCHIVE_FORM, archive_path, by_month
from tests.airflow_tpu.core.made_ledger import ASKED, closed, ledgers, opened


@given(ledgers())
def test_what_has_ended_is_read_back(events: list[Opened | Closed]) -> None:
    """Every incarnation with both events is in one month, with the generations of its objects, as it was read."""
    numbers = count(1)
    known = {event.path: (next(numbers), event) for event in events}
    ended = {event.node_id for event in events if isinstance(event, Closed)}
    found = {}
    for path, archive in by_month(known).items():
        again = ARCHIVE_FORM.from_json(json.loads(json.dumps(ARCHIVE_FORM.to_json(archive))))
        assert again == archive
        assert {archive_path(f"{event.requested_at:%Y-%m}") for event in again.opened} == {path}
        found.update(again.events())
    assert found == {path: entry for path, entry in known.items() if entry[1].node_id in ended}


def test_an_archive_is_the_same_in_whatever_order_it_was_read() -> None:
    """The same incarnations make the same object, so that nothing new is nothing to write."""
    events: list[Opened | Closed] = [opened("b"), closed("b"), opened("a"), closed("a")]
    known = {event.path: (7, event) for event in events}
    assert by_month(known) == by_month(dict(reversed(known.items())))


def test_a_month_is_that_of_the_request_in_utc() -> None:
    """What was asked for on the last evening of a month belongs to it, however long it ran."""
    late = opened("a", requested_at=ASKED + timedelta(days=3, hours=11, minutes=59))
    known = {event.path: (1, event) for event in (late, closed("a", minutes=90_000))}
    assert list(by_month(known)) == ["ledger/months/2026-11.v1.json.gz"]
