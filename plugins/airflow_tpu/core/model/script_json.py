# SPDX-License-Identifier: Apache-2.0
"""JSON files that a script wrote: data from outside, made fit for XCom, for PostgreSQL and for the UI.

Python writes NaN, JSON does not know it; PostgreSQL refuses a NUL and half a surrogate pair in JSON, and Airflow's task
SDK a number of more than 64 bits. None of that is a reason to fail a training that has ended well.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from airflow_tpu.core.model.model import NOT_FINITE

READ_LIMIT = 32 * 1024 * 1024
"""Bytes of a file that is read at all."""

SHOWN_LIMIT = 16 * 1024
"""Bytes of a file's content that XCom or a manifest takes; all of it is in the bucket."""

_DEPTH_LIMIT = 16
_DEEPER = "..."
_INTEGERS = range(-(2**63), 2**63)
_NOT_FINITE = {str(float(text)): text for text in NOT_FINITE}


def parse(text: bytes) -> dict[str, Any]:
    """Read the object in a script's file; numbers that JSON does not know become the text that Python writes for them.

    :param text: content of the file, up to a byte more than :data:`READ_LIMIT`.
    :raises ValueError: why it cannot be read, as the end of a sentence about the file.
    """
    if len(text) > READ_LIMIT:
        raise ValueError(f"is larger than {READ_LIMIT // 2**20} MiB")
    try:
        found = json.loads(text, parse_constant=str, parse_float=_number, parse_int=_integer)
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"is not JSON ({error})") from error
    if not isinstance(found, dict):
        raise ValueError(f"holds a {type(found).__name__}, not an object")
    return {_text(name): _fit(value, _DEPTH_LIMIT) for name, value in found.items()}


def shorten(data: Mapping[str, Any], limit: int = SHOWN_LIMIT) -> tuple[dict[str, Any], list[str]]:
    """Keep the small entries of an object, as many as fit.

    :param data: of :func:`parse`.
    :param limit: most bytes of JSON that are kept.
    :return: what is kept, in its order, and the names of the rest, cut to a readable length.
    """
    sizes = {name: len(json.dumps({name: value})) for name, value in data.items()}
    kept: set[str] = set()
    for name in sorted(sizes, key=lambda name: sizes[name]):
        limit -= sizes[name]
        if limit < 0:
            break
        kept.add(name)
    left_out = [name[:60] for name in data if name not in kept]
    return {name: value for name, value in data.items() if name in kept}, left_out


def _number(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else _NOT_FINITE[str(value)]


def _integer(text: str) -> int | float | str:
    if len(text) > len(str(_INTEGERS.start)) or int(text) not in _INTEGERS:
        return _number(text)
    return int(text)


def _fit(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return _text(value)
    if not isinstance(value, dict | list):
        return value
    if not depth:
        return _DEEPER
    if isinstance(value, list):
        return [_fit(item, depth - 1) for item in value]
    return {_text(name): _fit(item, depth - 1) for name, item in value.items()}


def _text(text: str) -> str:
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")
