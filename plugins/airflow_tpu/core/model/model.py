# SPDX-License-Identifier: Apache-2.0
"""A trained model as a candidate for champion: its manifest, the comparison, the pointer.

Every candidate is recorded; only a better one becomes the champion. Both are measured by the candidate's own run,
on the same held-out examples with the same code: figures from two different nights say nothing about each other when
the data have changed in between.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_tpu.core import json_form
from airflow_tpu.errors import ConfigError, Fault, NothingProduced

HISTORY = 20
"""Former champions that the pointer remembers for a rollback."""

NOT_FINITE = ("NaN", "Infinity", "-Infinity")
"""How a result has the numbers that JSON does not know."""


@dataclass(frozen=True)
class ModelManifest:
    """The record of one version; written once, never changed.

    :param model: name under which versions compete.
    :param version: sorts by time.
    :param created_at: ISO instant.
    :param artifacts_uri: attempt whose output it is.
    :param fingerprint: of data, code and arguments (:func:`airflow_tpu.core.model.fingerprint.fingerprint`).
    :param result: the script's ``result.json``: metrics, steps, versions.
    :param origin: DAG, run, code revision, accelerator, seed.
    :param usage: chip-hours and list value (USD) that the training took.
    :param acknowledgement: what a publication owes the TPU Research Cloud.
    """

    model: str
    version: str
    created_at: str
    artifacts_uri: str
    fingerprint: str
    result: Mapping[str, Any]
    origin: Mapping[str, Any] = field(default_factory=dict)
    usage: Mapping[str, Any] = field(default_factory=dict)
    acknowledgement: str = ""


@dataclass(frozen=True)
class Decision:
    """The outcome of a comparison.

    :param better: whether to promote the candidate.
    :param reason: in words.
    """

    better: bool
    reason: str


@dataclass(frozen=True)
class Champion:
    """Which version is in use; replaced as a whole, at the generation it was read at.

    :param version: the version in use.
    :param artifacts_uri: where it is.
    :param promoted_at: ISO instant.
    :param reason: why it is the champion, in words.
    :param history: former champions, newest first.
    """

    version: str
    artifacts_uri: str
    promoted_at: str
    reason: str
    history: tuple[str, ...] = ()

    @property
    def line(self) -> tuple[str, ...]:
        """This version and those before it."""
        return (self.version, *self.history)

    @classmethod
    def crown(cls, manifest: ModelManifest, decision: Decision, at: str, line: tuple[str, ...] = ()) -> Champion:
        """Return the pointer to a version.

        :param at: ISO instant.
        :param line: the versions that a rollback may go back to, newest first.
        """
        history = tuple(version for version in line if version != manifest.version)[:HISTORY]
        return cls(manifest.version, manifest.artifacts_uri, at, decision.reason, history)


MANIFEST_FORM = json_form.StoredForm("manifest of a model version", ModelManifest, version_field="schema_version")
CHAMPION_FORM = json_form.StoredForm("champion pointer", Champion, version_field="schema_version")
"""Their own ``version`` is a version of the model."""


@dataclass(frozen=True)
class Bar:
    """What a candidate has to reach.

    :param metric: name of a metric of ``result.json``.
    :param min_improvement: how much better than the champion it must be, in the metric's own unit.
    :param higher_is_better: direction of the metric; None takes what ``result.json`` says, and higher if it says none.
    """

    metric: str
    min_improvement: float = 0.0
    higher_is_better: bool | None = None

    def rises(self, reported: bool | None) -> bool:
        """Whether a higher value is better.

        :param reported: what ``result.json`` says of it, None if it does not.
        :raises ConfigError: it says the opposite of what was asked for.
        """
        if None not in (reported, self.higher_is_better) and reported is not self.higher_is_better:
            said = f"result.json says higher_is_better {str(reported).lower()}, the DAG the opposite; mend one of them"
            raise ConfigError([Fault("metric", self.metric, said)], "the promotion")
        return next((one for one in (self.higher_is_better, reported) if one is not None), True)


def decide(candidate: ModelManifest, champion: Champion | None, bar: Bar) -> Decision:
    """Compare a candidate with the champion by what the candidate's run measured of both.

    :raises NothingProduced: the run did not report the metric.
    :raises ConfigError: the run reported it with the opposite direction.
    """
    value, reported = _measured(candidate.result.get("metrics"), bar.metric, candidate.artifacts_uri)
    up = bar.rises(reported)
    if not math.isfinite(value):
        return Decision(False, f"{bar.metric} is {value}, which cannot be compared")
    if champion is None:
        return Decision(True, f"the first version: {bar.metric} {value:.6g}")
    baseline = candidate.result.get("baseline")
    if not isinstance(baseline, Mapping) or baseline.get("uri") != champion.artifacts_uri:
        return Decision(False, f"its run did not measure the champion {champion.version} on the same examples")
    if baseline.get("error"):
        return Decision(False, f"the champion {champion.version} could not be measured: {baseline['error']}")
    other, _ = _measured(baseline.get("metrics"), bar.metric, champion.artifacts_uri)
    gain = value - other if up else other - value
    words = f"{bar.metric} {value:.6g} against the champion's {other:.6g} on the same held-out examples"
    if math.isfinite(other) and not (gain > 0 and gain >= bar.min_improvement):
        return Decision(False, f"not better: {words}")
    return Decision(True, f"better: {words}")


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) or value in NOT_FINITE else None


def _measured(metrics: Any, name: str, where: str) -> tuple[float, bool | None]:
    found = metrics.get(name) if isinstance(metrics, Mapping) else None
    value = _number(found.get("value")) if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping) or value is None:
        known = ", ".join(sorted(metrics)) if isinstance(metrics, Mapping) else "none"
        raise NothingProduced(f"result.json of {where} has no metric {name!r}; it reports: {known}")
    direction = found.get("higher_is_better")
    return value, None if direction is None else bool(direction)
