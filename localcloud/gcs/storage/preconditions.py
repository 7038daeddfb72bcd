# SPDX-License-Identifier: Apache-2.0
"""Generation and metageneration preconditions, on every verb.

Semantics: https://cloud.google.com/storage/docs/request-preconditions. A missing object has generation 0.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Protocol

from localcloud.gcs.storage import errors
from localcloud.gcs.storage.errors import GCSError


class Versioned(Protocol):
    """What preconditions look at."""

    @property
    def generation(self) -> int:
        """Generation number."""

    @property
    def metageneration(self) -> int:
        """Metageneration number."""


@dataclass(frozen=True)
class Preconditions:
    """Conditions of one request on one object or bucket; ``None``: no condition.

    :param generation: the current generation must be this; 0: the object must not exist.
    :param not_generation: the current generation must not be this.
    :param metageneration: the current metageneration must be this.
    :param not_metageneration: the current metageneration must not be this.
    """

    generation: int | None = None
    not_generation: int | None = None
    metageneration: int | None = None
    not_metageneration: int | None = None

    @classmethod
    def of_query(cls, query: Mapping[str, str]) -> Preconditions:
        """Read the parameters of the JSON interface."""
        return cls._read(lambda name: query.get(f"if{name}"))

    @classmethod
    def of_source(cls, query: Mapping[str, str]) -> Preconditions:
        """Read the parameters of the JSON interface that are about the source of a copy."""
        return cls._read(lambda name: query.get(f"ifSource{name}"))

    @classmethod
    def _read(cls, get: Callable[[str], str | None]) -> Preconditions:
        return cls(
            _number(get("GenerationMatch")),
            _number(get("GenerationNotMatch")),
            _number(get("MetagenerationMatch")),
            _number(get("MetagenerationNotMatch")),
        )

    @classmethod
    def of_text(cls, text: str) -> Preconditions:
        """Read the form kept with an upload session."""
        return cls(**json.loads(text))

    def as_text(self) -> str:
        """Return the form kept with an upload session."""
        return json.dumps(asdict(self))

    def _wanted(self, current: Versioned | None) -> bool:
        generation = current.generation if current else 0
        metageneration = current.metageneration if current else None
        return self.generation in (None, generation) and self.metageneration in (None, metageneration)

    def _unwanted(self, current: Versioned | None) -> bool:
        generation = current.generation if current else 0
        metageneration = current.metageneration if current else 0
        by_generation = self.not_generation is not None and self.not_generation == generation
        return by_generation or (self.not_metageneration is not None and self.not_metageneration == metageneration)

    def check_write(self, current: Versioned | None) -> None:
        """Accept a change.

        :param current: the live generation, or ``None``.
        :raises GCSError: 412 if a condition does not hold.
        """
        if not self._wanted(current) or self._unwanted(current):
            raise errors.not_met()

    def check_read(self, current: Versioned) -> None:
        """Accept a read.

        :raises GCSError: 412 if a condition does not hold; 304 if the client has this version already.
        """
        if not self._wanted(current):
            raise errors.not_met()
        if self._unwanted(current):
            raise errors.not_modified()


def _number(text: str | None) -> int | None:
    if text is None or text == "":
        return None
    try:
        return int(text)
    except ValueError:
        raise GCSError(400, "invalid", f"Invalid precondition: {text!r} is not a number") from None
