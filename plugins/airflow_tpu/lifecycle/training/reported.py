# SPDX-License-Identifier: Apache-2.0
"""Read what a script reported of its training: its files in the bucket may hold anything."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow_tpu.core.model import script_json
from airflow_tpu.errors import NothingProduced

if TYPE_CHECKING:
    from airflow_tpu.hooks.artifacts import ArtifactsHook

log = logging.getLogger(__name__)

_NAMED = 5
_DECISIVE = ("metrics", "baseline")


def metrics(storage: ArtifactsHook, uri: str) -> dict[str, Any]:
    """Return the part of ``metrics.json`` that fits into XCom; an unreadable file does not fail a good training.

    :param storage: the bucket.
    :param uri: of the attempt's artifacts.
    :return: empty without such a file.
    """
    where = f"{uri}/output/metrics.json"
    text = storage.read_start(where, script_json.READ_LIMIT + 1)
    if text is None:
        return {}
    try:
        found = script_json.parse(text)
    except ValueError as error:
        log.warning("no metrics in XCom: %s %s; write one JSON object there to see them in Airflow", where, error)
        return {}
    return _shorten(where, found)


def result(storage: ArtifactsHook, uri: str) -> dict[str, Any]:
    """Return the part of ``result.json`` that a model's manifest keeps.

    :param storage: the bucket.
    :param uri: of the attempt's artifacts.
    :raises NothingProduced: there is no such file, or no JSON object in it: nothing can be compared.
    """
    where = f"{uri}/output/result.json"
    text = storage.read_start(where, script_json.READ_LIMIT + 1)
    if text is None:
        raise NothingProduced(f"{uri} has no result.json; a script writes it to be compared")
    try:
        found = script_json.parse(text)
    except ValueError as error:
        raise NothingProduced(
            f"the model cannot be compared: {where} {error}. The artifacts are kept; write one JSON object there"
        ) from error
    # What decides is kept first, whatever else stands there.
    decisive = {name: found.pop(name) for name in _DECISIVE if isinstance(found.get(name), dict)}
    baseline = decisive.get("baseline", {})
    if isinstance(baseline.get("metrics"), dict):
        baseline["metrics"] = _shorten(f"baseline.metrics of {where}", baseline["metrics"])
    return {name: _shorten(f"{name} of {where}", value) for name, value in decisive.items()} | _shorten(where, found)


def _shorten(where: str, data: dict[str, Any]) -> dict[str, Any]:
    kept, left_out = script_json.shorten(data)
    if left_out:
        named = ", ".join(left_out[:_NAMED]) + (", ..." if len(left_out) > _NAMED else "")
        log.warning("%s is larger than %d KiB; only there: %s", where, script_json.SHOWN_LIMIT // 1024, named)
    return kept
