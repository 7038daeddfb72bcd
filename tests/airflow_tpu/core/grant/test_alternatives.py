# SPDX-License-Identifier: Apache-2.0
"""The TPUs that a run tries when its zone has no capacity, and in which order."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from airflow_tpu.core import json_form
from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.grant.alternatives import Alternative, CapacitySearch, alternatives, with_zones_of
from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.core.request.run_conf import RunConf
from airflow_tpu.core.tpu.spec import Tier
from airflow_tpu.errors import ConfigError
from tests.airflow_tpu.shipped import GENERATIONS

NOW = dt.datetime(2026, 11, 28, 4, 0, tzinfo=dt.UTC)
ROWS = [
    {"count": 1, "unit": "devices", "tier": "on-demand", "type": "v2-8", "zone": "us-central1-f"},
    {"count": 9, "unit": "devices", "tier": "spot", "type": "v2-8", "zone": "us-central1-f"},
    {"count": 9, "unit": "devices", "tier": "spot", "type": "v2-8", "zone": "europe-west4-a"},
    {"count": 9, "unit": "devices", "tier": "spot", "type": "v3-8", "zone": "us-central1-a"},
    {"count": 64, "unit": "chips", "tier": "spot", "generation": "v5e", "zone": "us-central1-a"},
]


def grant(*rows: dict[str, Any]) -> Grant:
    """A grant of these rows."""
    letter = {
        "project_id": "project-a",
        "project_number": "100000000001",
        "start": "2026-11-01",
        "days": 90,
        "bucket": "bucket-a",
    }
    return Grant.parse({**letter, "allowances": list(rows)}, GENERATIONS)


def conf(catalogue: Catalogue, **fields: Any) -> RunConf:
    """A form that lets the run try other rows."""
    asked = {
        "script": "hello.py",
        "accelerator_type": "v2-8",
        "zone": "us-central1-f",
        "artifacts_uri": "gs://bucket-a/runs",
        "on_stock_out": "walk",
    }
    return RunConf.parse({**asked, **fields}, catalogue)


def found(catalogue: Catalogue, *rows: dict[str, Any], **fields: Any) -> list[str]:
    """Choices in words, in their order."""
    return [str(alternative) for alternative in alternatives(conf(catalogue, **fields), grant(*rows), catalogue)]


def test_rows_in_the_region_with_as_many_chips(catalogue: Catalogue) -> None:
    """The form's alternative comes first, then the rows of the grant in their order; another region is none."""
    assert found(catalogue, *ROWS) == [
        "spot v2-8 in us-central1-f",
        "on-demand v2-8 in us-central1-f",
        "spot v3-8 in us-central1-a",
        "spot v5litepod-4 in us-central1-a",
    ]


def test_order_is_that_of_the_grant(catalogue: Catalogue) -> None:
    """The row that comes first in the grant file is tried first."""
    forwards, backwards = found(catalogue, *ROWS)[1:], found(catalogue, *reversed(ROWS))[1:]
    assert backwards == forwards[::-1]


def test_waiting_run_has_one_choice(catalogue: Catalogue) -> None:
    """Unless the form says so, a run stays where it was asked to be."""
    assert found(catalogue, *ROWS, on_stock_out="wait") == ["spot v2-8 in us-central1-f"]


def test_image_of_another_generation_follows_only_from_a_default(catalogue: Catalogue) -> None:
    """A form that names an image on purpose is not given another one; where the image runs, it stays."""
    kinds = catalogue.types
    wanted = next(
        name
        for name in catalogue.runtime_versions(kinds["v2-8"].generation)
        if name != kinds["v2-8"].default_runtime and name not in catalogue.runtime_versions("v5e") and "pod" not in name
    )
    kept = alternatives(conf(catalogue, runtime_version=wanted), grant(*ROWS), catalogue)
    assert "v5litepod-4" not in {alternative.accelerator_type for alternative in kept}
    assert {alternative.runtime_version for alternative in kept} == {wanted}
    free = alternatives(conf(catalogue), grant(*ROWS), catalogue)
    runs = [
        alternative.runtime_version in catalogue.runtime_versions(kinds[alternative.accelerator_type].generation)
        for alternative in free
    ]
    assert all(runs)


A, B, C = (Alternative("us-central1-f", kind, "image", Tier.SPOT) for kind in ("v2-8", "v3-8", "v5litepod-4"))


def test_capacity_search_tries_all_then_waits_and_starts_over() -> None:
    """Each alternative is requested once in a round; after the last one the run waits, and the first is next."""
    search, alternative = CapacitySearch(NOW), A
    seen = []
    for _ in range(6):
        search, alternative, wait = search.after(alternative, [A, B, C])
        seen.append((alternative.accelerator_type, wait))
    assert seen == [("v3-8", False), ("v5litepod-4", False), ("v2-8", True)] * 2
    assert (search.rounds, search.since) == (2, NOW)


def test_capacity_search_that_begins_elsewhere_comes_round() -> None:
    """A run that was preempted at another alternative tries the form's alternative next."""
    _, alternative, wait = CapacitySearch(NOW).after(C, [A, B, C])
    assert (alternative, wait) == (A, False)


@pytest.mark.parametrize(("rounds", "pause"), [(1, 300.0), (2, 450.0), (3, 675.0), (20, 1800.0)])
def test_pauses_grow_to_a_limit(rounds: int, pause: float) -> None:
    """From five minutes to half an hour."""
    assert CapacitySearch(NOW, rounds).pause(300.0) == pause


def test_json_form_reads_back_equal() -> None:
    """It survives the lease object."""
    search, _, _ = CapacitySearch(NOW).after(A, [A, B])
    assert json_form.from_json(CapacitySearch, json.loads(json.dumps(json_form.to_json(search)))) == search


def test_a_zone_that_the_price_list_lacks_is_a_zone(catalogue: Catalogue) -> None:
    """Where the grant gives chips of a generation, its types may be asked for; what they cost there is unknown."""
    row = {"count": 64, "unit": "chips", "tier": "spot", "generation": "v5e", "zone": "us-south9-z"}
    known = with_zones_of(grant(row, ROWS[0]), catalogue)
    assert "us-south9-z" not in catalogue.zones_of("v5litepod-4")
    assert known.zones_of("v5litepod-4") == (*catalogue.zones_of("v5litepod-4"), "us-south9-z")
    assert known.zones_of("v2-8") == catalogue.zones_of("v2-8")
    assert known.price("v5litepod-4", "us-south9-z", Tier.SPOT) is None
    form = {"script": "a.py", "accelerator_type": "v5litepod-4", "zone": "us-south9-z", "artifacts_uri": "gs://b-c/r"}
    assert RunConf.parse(form, known).zone == "us-south9-z"
    with pytest.raises(ConfigError, match="does not offer v2-8"):
        RunConf.parse({**form, "accelerator_type": "v2-8"}, known)
