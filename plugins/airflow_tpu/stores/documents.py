# SPDX-License-Identifier: Apache-2.0
"""Read an object that may hold anything: one that is no JSON must not hide the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Union

from airflow_tpu.errors import DamagedObject

if TYPE_CHECKING:
    from airflow_tpu.hooks.artifacts import ArtifactsHook, StoredJSON


@dataclass(frozen=True)
class NotJSON:
    """What was read in place of JSON.

    :param reason: where it ceases to be JSON.
    """

    reason: str


Document = Union["StoredJSON", NotJSON]
"""What an object holds."""


def reader(hook: ArtifactsHook) -> Callable[[str], Document | None]:
    """What reads an object by its URI, None when there is none."""

    def read(uri: str) -> Document | None:
        try:
            return hook.read_json(uri)
        except ValueError as error:
            return NotJSON(str(error))

    return read


def content_of(found: Document, name: str) -> object:
    """Content of an object.

    :param name: of the object, for people.
    :raises DamagedObject: it is no JSON.
    """
    if isinstance(found, NotJSON):
        raise DamagedObject(f"{name} is damaged (it is not JSON: {found.reason})")
    return found.data
