# SPDX-License-Identifier: Apache-2.0
"""The JSON form of every value of ours that is stored or carried: written and read by one converter.

The same value is the same text, so that an answer that was lost can be told from a write that was overtaken. What is
read is checked: a field that is missing, unknown or of another type is an error, never a guess.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from airflow_tpu.errors import DamagedObject, TPUError, UnknownVersion

if TYPE_CHECKING:
    from cattrs import Converter

T = TypeVar("T")


WRITERS = "writers"
"""Field of an object that is changed: marks of its last writes. A writer whose answer was lost finds its own there."""


class NotOfThisForm(ValueError):
    """The JSON does not describe a value of the wanted class."""


@dataclass(frozen=True)
class StoredForm(Generic[T]):
    """How one kind of object is stored: the fields of its class, with the version of the form beside them.

    A change of the class that an older release could misread raises the version.

    :param what: the kind of object, for people.
    :param kind: its class.
    :param version: number of the form that this release writes and reads.
    :param version_field: name under which the version stands.
    :param tags: fields with a constant value, such as the kind of an event.
    :param damaged: makes the error of an object that is of this version and cannot be read.
    """

    what: str
    kind: type[T]
    version: int = 1
    version_field: str = "version"
    tags: Mapping[str, str] = field(default_factory=dict)
    damaged: Callable[[str], TPUError] = DamagedObject

    def to_json(self, value: T) -> dict[str, Any]:
        """Content of the object, as plain JSON."""
        return {self.version_field: self.version, **self.tags, **to_json(value)}

    def to_bytes(self, value: T) -> bytes:
        """Content of the object, as text; equal values have equal bytes."""
        return encode(self.to_json(value))

    def from_json(self, data: object, name: str = "") -> T:
        """Read an object back.

        :param data: its content.
        :param name: its path or URI, for people.
        :raises UnknownVersion: it is of another version, or names none.
        :raises TPUError: from ``damaged``.
        """
        self.check_version(data, name)
        fields = dict(cast("Mapping[str, Any]", data))
        del fields[self.version_field]
        fields.pop(WRITERS, None)
        wrong = [key for key, value in self.tags.items() if fields.pop(key, None) != value]
        if wrong:
            raise self._damaged(f"{wrong[0]} is not {self.tags[wrong[0]]!r}", data, name)
        missing = [entry.name for entry in dataclasses.fields(cast(Any, self.kind)) if entry.name not in fields]
        if missing:  # every field is always written: a default here would take half an object for a whole one
            raise self._damaged(f"{missing[0]} is missing", data, name)
        try:
            return from_json(self.kind, fields)
        except NotOfThisForm as error:
            raise self._damaged(str(error), data, name) from error

    def check_version(self, data: object, name: str = "") -> None:
        """Leave what another release has written alone.

        :raises UnknownVersion: it is of another version, or names none.
        :raises TPUError: from ``damaged``: it is no JSON object.
        """
        if not isinstance(data, Mapping):
            raise self._damaged("it is no JSON object", data, name)
        version = data.get(self.version_field)
        if isinstance(version, bool) or version != self.version:
            raise unknown_version(f"{self.what} {name}", version, self.version, name)

    def _damaged(self, problem: str, data: object, name: str) -> TPUError:
        return self.damaged(f"the {self.what} {name} is damaged ({problem}): {str(data)[:200]}")


def unknown_version(what: str, version: object, known: int, name: str = "") -> UnknownVersion:
    """The error of an object that another release has written.

    :param what: the object, for people.
    :param version: its version.
    :param known: the version that this release reads.
    :param name: its path or URI.
    """
    return UnknownVersion(
        f"the {what} has version {version!r}, and this release reads version {known}: it is left as it is. Use the "
        "release that wrote it",
        name,
        version,
    )


def encode(data: Mapping[str, Any]) -> bytes:
    """Write JSON with sorted keys, no spaces, UTF-8, no NaN.

    :raises ValueError: if a number is NaN or infinite.
    """
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")


def to_json(value: Any) -> Any:
    """Plain JSON of a value.

    :raises ValueError: an instant has no timezone.
    """
    return _converter().unstructure(value)


def from_json(kind: type[T], data: object) -> T:
    """Read :func:`to_json` back.

    :raises NotOfThisForm: a field is missing, unknown or of another type.
    """
    from cattrs.errors import ForbiddenExtraKeysError

    try:
        return _converter().structure(data, kind)
    except KeyError as error:
        raise NotOfThisForm(f"{error} is missing") from error
    except (AttributeError, TypeError, ValueError, ForbiddenExtraKeysError) as error:
        raise NotOfThisForm(f"{error}") from error


def instant_to_json(instant: datetime) -> str:
    """ISO form in UTC of an aware instant.

    :raises ValueError: if the instant is naive.
    """
    if instant.tzinfo is None:
        raise ValueError(f"{instant} needs a timezone")
    return instant.astimezone(UTC).isoformat()


def instant_from_json(text: str) -> datetime:
    """Inverse of :func:`instant_to_json`.

    :raises ValueError: if the text is no ISO instant with a timezone.
    """
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError(f"{text} needs a timezone")
    return instant.astimezone(UTC)


@cache
def _converter() -> Converter:
    """The converter, made on first use: a DAG file is parsed without it."""
    from cattrs import Converter

    made = Converter(detailed_validation=False, forbid_extra_keys=True, unstruct_collection_overrides={tuple: list})
    for kind, accepted in {str: (str,), bool: (bool,), int: (int,), float: (int, float)}.items():
        made.register_structure_hook(kind, _exactly(kind, accepted))
    made.register_unstructure_hook(datetime, instant_to_json)
    made.register_structure_hook(datetime, lambda text, _: instant_from_json(text))
    made.register_unstructure_hook_func(_is_text, str)
    made.register_structure_hook_func(_is_text, lambda text, kind: kind.parse(text))
    return made


def _is_text(kind: Any) -> bool:
    """Whether values of a class stand as their text, which its ``parse`` reads; the class says so itself."""
    return getattr(kind, "text_in_json", False) is True


def _exactly(kind: type, accepted: tuple[type, ...]) -> Callable[[Any, Any], Any]:
    """A reader that takes a value as it is, or not at all: ``"3"`` is no number and ``1`` is no truth."""

    def read(value: Any, wanted: Any) -> Any:
        if not isinstance(value, accepted) or (kind is not bool and isinstance(value, bool)):
            raise TypeError(f"{value!r} is no {kind.__name__}")
        return value if wanted is kind else wanted(value)  # an enum of words is a kind of str

    return read
