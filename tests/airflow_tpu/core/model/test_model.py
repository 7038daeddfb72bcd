# SPDX-License-Identifier: Apache-2.0
"""Which candidate becomes the champion, and where a rollback can go."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from airflow_tpu.core.model.model import (
    CHAMPION_FORM,
    HISTORY,
    MANIFEST_FORM,
    Bar,
    Champion,
    Decision,
    ModelManifest,
    decide,
)
from airflow_tpu.errors import ConfigError, NothingProduced

CHAMPION = Champion("v1", "gs://b/runs/one/attempt-1", "2026-11-27T02:00:00+00:00", "the first version")
BAR = Bar("accuracy", 0.01)


def measured(value: float, up: bool = True) -> dict[str, Any]:
    """Metrics as a script reports them."""
    return {"accuracy": {"value": value, "higher_is_better": up}}


def candidate(value: float, champion: float | None = 0.9, up: bool = True, **baseline: Any) -> ModelManifest:
    """A version whose run measured itself and the champion."""
    result: dict[str, Any] = {"metrics": measured(value, up)}
    if champion is not None:
        result["baseline"] = {"uri": CHAMPION.artifacts_uri, "metrics": measured(champion, up), **baseline}
    return ModelManifest("digits", "v2", "2026-11-28T02:00:00+00:00", "gs://b/runs/two/attempt-1", "f" * 32, result)


def test_first_version_is_the_champion() -> None:
    """Without a champion any measured version takes its place."""
    assert decide(candidate(0.1, None), None, BAR).better


@pytest.mark.parametrize(
    ("value", "up", "better"),
    [(0.92, True, True), (0.905, True, False), (0.9, True, False), (0.8, True, False), (0.8, False, True)],
)
def test_only_what_is_better_by_enough_is_promoted(value: float, up: bool, better: bool) -> None:
    """The gain counts in the metric's own direction and has to reach the wanted improvement."""
    decision = decide(candidate(value, up=up), CHAMPION, BAR)
    assert decision.better is better
    assert f"{value:.6g} against the champion's 0.9" in decision.reason


@pytest.mark.parametrize(
    ("reported", "asked", "better"),
    [({}, False, True), ({}, None, False), ({}, True, False), ({"higher_is_better": False}, False, True)],
)
def test_direction_of_the_metric(reported: dict[str, bool], asked: bool | None, better: bool) -> None:
    """The DAG says which way is better where the script does not; without either, higher is."""
    found = candidate(0.8)
    metrics = {"accuracy": {"value": 0.8, **reported}}
    lower = replace(found, result={**found.result, "metrics": metrics})
    assert decide(lower, CHAMPION, Bar("accuracy", higher_is_better=asked)).better is better


def test_two_directions_of_one_metric_are_refused() -> None:
    """A script that reports the opposite of what the DAG says decides nothing: one of them is wrong."""
    with pytest.raises(ConfigError, match=r"result.json says higher_is_better true, the DAG the opposite"):
        decide(candidate(0.8), CHAMPION, Bar("accuracy", higher_is_better=False))


def test_equal_is_not_better() -> None:
    """With no improvement asked for, an equal model still leaves the champion in place."""
    assert not decide(candidate(0.9), CHAMPION, Bar("accuracy")).better


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_no_number_is_never_promoted(value: float) -> None:
    """A diverged model does not become the champion, even without one to beat."""
    assert not decide(candidate(value), CHAMPION, BAR).better
    assert not decide(candidate(value, None), None, BAR).better


def test_champion_without_a_number_is_beaten() -> None:
    """A champion that measures as NaN on the new examples does not keep its place."""
    assert decide(candidate(0.5, math.nan), CHAMPION, BAR).better


def test_figures_of_two_nights_are_not_compared() -> None:
    """A run that did not measure this very champion promotes nothing."""
    assert "did not measure the champion v1" in decide(candidate(0.99, None), CHAMPION, BAR).reason
    other = candidate(0.99, 0.1, uri="gs://b/runs/zero/attempt-1")
    assert not decide(other, CHAMPION, BAR).better


def test_champion_that_cannot_be_loaded_stays() -> None:
    """The reason says why the champion could not be measured."""
    decision = decide(candidate(0.99, 0.0, error="no saved_model.pb"), CHAMPION, BAR)
    assert (decision.better, "no saved_model.pb" in decision.reason) == (False, True)


@pytest.mark.parametrize("result", [{}, {"metrics": {}}, {"metrics": {"loss": {"value": 1}}}, {"metrics": 3}])
def test_missing_metric_is_an_error(result: dict[str, Any]) -> None:
    """The error names the metric and what the script reports instead."""
    with pytest.raises(NothingProduced, match=r"'accuracy'.*reports: (none|loss|)"):
        decide(replace(candidate(0.5), result=result), CHAMPION, BAR)


def test_line_of_champions_is_kept_and_bounded() -> None:
    """The champion before is first, no version is in the line twice, and it does not grow for ever."""
    champion = CHAMPION
    for number in range(2, 40):
        manifest = replace(candidate(0.9), version=f"v{number}")
        champion = Champion.crown(manifest, Decision(True, "better"), "2026-11-28T02:00:00+00:00", champion.line)
    assert champion.line[:3] == ("v39", "v38", "v37")
    assert len(champion.history) == HISTORY
    back = Champion.crown(replace(candidate(0.9), version="v38"), Decision(True, "back"), "now", champion.history)
    assert back.line[:2] == ("v38", "v37")


def test_json_and_back() -> None:
    """Manifest and pointer survive their JSON form."""
    champion = replace(CHAMPION, history=("v0",))
    assert CHAMPION_FORM.from_json(CHAMPION_FORM.to_json(champion)) == champion
    assert MANIFEST_FORM.from_json(MANIFEST_FORM.to_json(candidate(0.9))) == candidate(0.9)


@pytest.mark.parametrize("value", ["NaN", "Infinity"])
def test_metric_that_json_does_not_know_cannot_be_compared(value: str) -> None:
    """A script that diverged after all loses, by the text that its NaN has become."""
    broken = replace(candidate(0.0, None), result={"metrics": {"accuracy": {"value": value}}})
    assert "cannot be compared" in decide(broken, None, BAR).reason


@pytest.mark.parametrize("baseline", [[], "gs://b/x", 3])
def test_baseline_of_another_form_is_none(baseline: object) -> None:
    """A script may write anything: what is no object has not measured the champion."""
    odd = replace(candidate(0.95), result={"metrics": measured(0.95), "baseline": baseline})
    assert not decide(odd, CHAMPION, BAR).better
