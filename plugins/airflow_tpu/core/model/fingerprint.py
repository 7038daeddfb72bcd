# SPDX-License-Identifier: Apache-2.0
"""Digest of everything that a training depends on: while it is the same, training again would bring nothing new."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_tpu.core import json_form


@dataclass(frozen=True)
class DataObject:
    """One object of a data set.

    :param name: object name.
    :param size: bytes.
    :param checksum: CRC-32C as Cloud Storage reports it. Its content decides, not its generation: a data set that was
        uploaded once more, byte for byte, has not changed.
    """

    name: str
    size: int
    checksum: str


def code_digest(bundle: str, revision: str) -> str:
    """Digest of the code of a run: what travels with its script, and what the script fetches by itself.

    :param bundle: digest of the files that travel.
    :param revision: commit or tag of the code that is fetched, empty for none.
    """
    return hashlib.sha256(json_form.encode({"bundle": bundle, "revision": revision})).hexdigest()


def fingerprint(data: Iterable[DataObject], code: str, settings: Mapping[str, Any]) -> str:
    """Digest of data, code and settings.

    :param data: every object of the data set, in any order.
    :param code: as :func:`code_digest` returns it.
    :param settings: arguments, environment, seed and whatever else shapes the result.
    """
    objects = sorted((one.name, one.size, one.checksum) for one in data)
    document = {"data": objects, "code": code, "settings": settings}
    return hashlib.sha256(json_form.encode(document)).hexdigest()[:32]
