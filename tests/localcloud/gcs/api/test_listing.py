# SPDX-License-Identifier: Apache-2.0
"""Listing of objects against a plain model, for whatever names and pages Hypothesis thinks of."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from multidict import CIMultiDict

from localcloud.clock import ManualClock
from localcloud.gcs.api.listing import Query, list_page
from localcloud.gcs.protocol.wire import Call
from localcloud.gcs.storage import buckets, objects
from localcloud.gcs.storage.objects import Draft
from localcloud.gcs.storage.preconditions import Preconditions
from localcloud.gcs.storage.store import Store

NAMES = st.text(st.sampled_from("ab/.\U0010ffff"), min_size=1, max_size=6).filter(lambda name: name not in (".", ".."))
SHORT = st.text(st.sampled_from("ab/."), max_size=3)


async def nothing() -> AsyncIterator[bytes]:
    """Yield an empty body."""
    return
    yield b""


def listed(store: Store, query: dict[str, str]) -> tuple[list[str], list[str]]:
    """Return objects and prefixes of all pages together."""
    names, prefixes, token = [], [], ""
    while True:
        call = Call("GET", "/", [*query.items(), ("pageToken", token)], CIMultiDict(), nothing(), "")
        page = list_page(store, "b-1", Query.of(call))
        assert 1 <= len(page.items) + len(page.prefixes) <= int(query["maxResults"]) or not page.token
        names += [row.name for row in page.items]
        prefixes += page.prefixes
        token = page.token
        if not token:
            return names, prefixes


def expected(names: set[str], query: dict[str, str]) -> tuple[list[str], list[str]]:
    """Return what a listing must hold, by looking at every name."""
    prefix, delimiter = query["prefix"], query["delimiter"]
    items, prefixes = [], []
    for name in sorted(names, key=str.encode):
        bounded = query["startOffset"] <= name and (not query["endOffset"] or name < query["endOffset"])
        if not name.startswith(prefix) or not bounded:
            continue
        rest, found, _ = name[len(prefix) :].partition(delimiter) if delimiter else (name, "", "")
        folder = prefix + rest + found
        if not found:
            items.append(name)
        elif folder not in prefixes:
            prefixes.append(folder)
    return items, prefixes


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    names=st.sets(NAMES, max_size=12),
    prefix=SHORT,
    delimiter=st.sampled_from(["", "/", "a", "ab"]),
    start=SHORT,
    end=SHORT,
    size=st.integers(1, 4),
)
def test_pages_together_are_the_model(
    tmp_path: Path, names: set[str], prefix: str, delimiter: str, start: str, end: str, size: int
) -> None:
    """All pages together hold exactly the objects and prefixes of the model, in order, each once."""
    store = Store(tmp_path, ManualClock())
    store.query("DELETE FROM objects")
    store.query("DELETE FROM buckets")
    buckets.create(store, "b-1", "p", "1", {})
    for name in names:
        content = store.blobs.create().content()
        objects.commit(store, Draft("b-1", name, {}, Preconditions()), content)
    query = {"prefix": prefix, "delimiter": delimiter, "startOffset": start, "endOffset": end, "maxResults": str(size)}
    found, wanted = listed(store, query), expected(names, query)
    store.close()
    assert found == wanted
