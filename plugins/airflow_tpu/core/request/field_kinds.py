# SPDX-License-Identifier: Apache-2.0
"""Kinds of form fields: how each is read, how Airflow's form draws it, and its limits in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.request.fields import amount, boolean, choice, integer, positive

Schema = dict[str, Any]


class FieldKind(Protocol):
    """What a row of the form's table says about the values of its field."""

    def reader(self, catalogue: Catalogue) -> Callable[[Any], Any]:
        """Return the function that turns a submitted value into the typed one."""

    def schema(self, catalogue: Catalogue, optional: bool) -> Schema:
        """Return the JSON schema that Airflow's form is drawn from.

        :param optional: the field may stay empty.
        """

    def limits(self) -> str:
        """Return what is allowed, in words, as Markdown."""

    @property
    def annotation(self) -> str:
        """Type of the value where a run is written in Python, by its name in ``tpu_run.py``."""


@dataclass(frozen=True)
class Text:
    """A text.

    :param read: checks and types it; of an optional text it also gets the empty one.
    :param allowed: what is allowed, in words.
    :param lines: several lines.
    :param examples: values that the form proposes.
    :param annotation: type of the value where a run is written in Python.
    """

    read: Callable[[Any], Any]
    allowed: str
    lines: bool = False
    examples: Callable[[Catalogue], Sequence[str]] | tuple[str, ...] = ()
    annotation: str = "Text"

    def reader(self, catalogue: Catalogue) -> Callable[[Any], Any]:
        """Return the reader of this text."""
        return self.read

    def schema(self, catalogue: Catalogue, optional: bool) -> Schema:
        """Return the schema; Airflow's form refuses an empty text unless null is allowed, and then sends null."""
        schema: Schema = {"type": ["null", "string"]} if optional else {"type": "string", "minLength": 1}
        if self.lines:
            schema["format"] = "multiline"
        if self.examples:
            schema["examples"] = list(self.examples(catalogue) if callable(self.examples) else self.examples)
        return schema

    def limits(self) -> str:
        """Return what is allowed."""
        return self.allowed


@dataclass(frozen=True)
class Choice:
    """One of a few values.

    :param meanings: each value with its meaning, which the form shows behind it; empty for a value that needs none.
    :param typed: turns the value into the typed one.
    """

    meanings: Mapping[str, str]
    typed: Callable[[str], Any] = str

    def reader(self, catalogue: Catalogue) -> Callable[[Any], Any]:
        """Return the reader of these values."""
        read = choice(self.meanings)
        return lambda value: self.typed(read(value))

    def schema(self, catalogue: Catalogue, optional: bool) -> Schema:
        """Return the schema; everything but the form knows the value alone."""
        display = {value: f"{value}: {meaning}" for value, meaning in self.meanings.items() if meaning}
        return {"type": "string", "enum": [str(value) for value in self.meanings], "values_display": display}

    def limits(self) -> str:
        """Return the values."""
        return " or ".join(f"`{value}`" for value in self.meanings)

    @property
    def annotation(self) -> str:
        """Return the type in Python."""
        return "Text"


@dataclass(frozen=True)
class FromCatalogue:
    """One of the values that the catalogue lists.

    :param values: lists them.
    :param allowed: what is allowed, in words.
    :param read: reads one, by default only those that are listed.
    """

    values: Callable[[Catalogue], Sequence[str]]
    allowed: str
    read: Callable[[Any, Catalogue], str] | None = None

    def reader(self, catalogue: Catalogue) -> Callable[[Any], Any]:
        """Return the reader of these values."""
        read = self.read
        return choice(self.values(catalogue)) if read is None else lambda value: read(value, catalogue)

    def schema(self, catalogue: Catalogue, optional: bool) -> Schema:
        """Return the schema."""
        return {"type": "string", "enum": list(self.values(catalogue)), "values_display": {}}

    def limits(self) -> str:
        """Return what is allowed."""
        return self.allowed

    @property
    def annotation(self) -> str:
        """Return the type in Python."""
        return "Text"


@dataclass(frozen=True)
class Whole:
    """A whole number.

    :param least: smallest one allowed.
    :param most: largest one allowed.
    :param unit: what it counts, empty for a plain number.
    """

    least: int
    most: int
    unit: str = ""

    def reader(self, catalogue: Catalogue) -> Callable[[Any], Any]:
        """Return the reader of this range."""
        return integer(self.least, self.most)

    def schema(self, catalogue: Catalogue, optional: bool) -> Schema:
        """Return the schema."""
        return {"type": "integer", "minimum": self.least, "maximum": self.most}

    def limits(self) -> str:
        """Return the range."""
        return f"{self.least} to {self.most} {self.unit}".rstrip()

    @property
    def annotation(self) -> str:
        """Return the type in Python."""
        return "Whole"


@dataclass(frozen=True)
class Hours:
    """A number of hours.

    :param most: largest one allowed.
    :param zero: whether zero is allowed.
    """

    most: float
    zero: bool = field(kw_only=True)

    def reader(self, catalogue: Catalogue) -> Callable[[Any], Any]:
        """Return the reader of this range."""
        return amount(self.most) if self.zero else positive(self.most)

    def schema(self, catalogue: Catalogue, optional: bool) -> Schema:
        """Return the schema."""
        return {"type": "number", "maximum": self.most, "minimum" if self.zero else "exclusiveMinimum": 0}

    def limits(self) -> str:
        """Return the range."""
        return f"{'0' if self.zero else 'more than 0'} to {self.most} hours"

    @property
    def annotation(self) -> str:
        """Return the type in Python."""
        return "Number"


@dataclass(frozen=True)
class Flag:
    """Yes or no."""

    def reader(self, catalogue: Catalogue) -> Callable[[Any], Any]:
        """Return the reader of true and false."""
        return boolean

    def schema(self, catalogue: Catalogue, optional: bool) -> Schema:
        """Return the schema."""
        return {"type": "boolean"}

    def limits(self) -> str:
        """Return the values."""
        return "`true` or `false`"

    @property
    def annotation(self) -> str:
        """Return the type in Python."""
        return "Flag"
