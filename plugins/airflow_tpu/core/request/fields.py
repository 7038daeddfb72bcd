# SPDX-License-Identifier: Apache-2.0
"""Read flat input from a form or a YAML file: every fault at once, each with the nearest valid value."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from airflow_tpu.core.catalogue.catalogue import nearest
from airflow_tpu.errors import Fault

REQUIRED: Final = object()
REDACTED: Final = "(hidden)"
_SHOWN = 80
_INTEGER = re.compile(r"[+-]?[0-9]{1,15}(\.0{1,6})?")
_NUMBER = re.compile(r"[+-]?[0-9]{1,15}(\.[0-9]{1,15})?")


class Invalid(Exception):
    """A value is wrong.

    :param problem: what is wrong, in a few words.
    :param allowed: the valid values if they can be listed.
    :param nearest: the closest valid value.
    :param secret: the value must not be shown.
    """

    def __init__(
        self, problem: str, allowed: Iterable[str] = (), nearest: str | None = None, secret: bool = False
    ) -> None:
        self.problem = problem
        self.allowed = tuple(allowed)
        self.nearest = nearest
        self.secret = secret
        super().__init__(problem)


@dataclass(frozen=True)
class Field:
    """How to read one field.

    :param read: turns the raw value into the typed one, or raises :class:`Invalid`.
    :param default: raw value of a missing field; :data:`REQUIRED` makes it a fault, None allows it
        to be missing.
    :param sensitive: no message shows its value.
    """

    read: Callable[[Any], Any]
    default: Any = REQUIRED
    sensitive: bool = False


def read_fields(
    given: object,
    fields: Mapping[str, Field],
    prefix: str = "",
    unknown: Callable[[object, Iterable[str]], Fault] | None = None,
) -> tuple[dict[str, Any], list[Fault]]:
    """Read all fields.

    :param given: the mapping as it came in.
    :param fields: what is expected.
    :param prefix: put before field names in faults.
    :param unknown: returns the fault of a name that is none of the fields; by default with the nearest one.
    :return: typed values of the good fields, and a fault for each other one.
    """
    if not isinstance(given, Mapping):
        return {}, [Fault(prefix.rstrip(".") or "(all)", shown(given), "must be a mapping of fields", tuple(fields))]
    values: dict[str, Any] = {}
    odd = [key for key in given if key not in fields]
    faults = [unknown(key, fields) if unknown else _unknown(key, fields, prefix) for key in odd]
    for name, field in fields.items():
        raw = given.get(name, field.default)
        try:
            values[name] = _read_one(raw, field)
        except Invalid as error:
            hidden = REDACTED if field.sensitive else raw
            faults.append(fault_of(prefix + name, None if raw is REQUIRED else hidden, error))
    return values, faults


def fault_of(name: str, raw: object, error: Invalid) -> Fault:
    """The fault that an :class:`Invalid` stands for."""
    return Fault(name, REDACTED if error.secret else shown(raw), error.problem, error.allowed, error.nearest)


def shown(value: object) -> object:
    """The value, cut if it is too long for a message."""
    if isinstance(value, int) and abs(value) > 10**_SHOWN:
        return "a number of more than 80 digits"
    if isinstance(value, str | int | float | None) and len(str(value)) <= _SHOWN:
        return value
    return f"{str(value)[:_SHOWN]}..." if len(str(value)) > _SHOWN else str(value)


def _read_one(raw: Any, field: Field) -> Any:
    if raw is REQUIRED:
        raise Invalid("is missing")
    if raw is None and field.default is None:
        return None
    if raw is None and field.default != "":
        raise Invalid("is null; give a value or leave the field out")
    # Null is what Airflow's form sends for an optional text that was left empty.
    return field.read("" if raw is None else raw)


def _unknown(key: object, fields: Mapping[str, Field], prefix: str) -> Fault:
    # The value may be a password typed into the wrong place.
    return Fault(f"{prefix}{key}", REDACTED, "no such field", tuple(fields), nearest(key, fields))


def text(limit: int = 500, empty: bool = False) -> Callable[[Any], str]:
    """A reader of one line of text without control characters."""

    def read(value: Any) -> str:
        found = plain(value)
        if not found and not empty:
            raise Invalid("is empty")
        if len(found) > limit:
            raise Invalid(f"is longer than {limit} characters")
        if re.search(r"[\x00-\x1f\x7f]", found):
            raise Invalid("has control characters")
        return found

    return read


def optional(read: Callable[[Any], str]) -> Callable[[Any], str]:
    """A reader that also takes the empty text."""
    return lambda value: "" if value == "" else read(value)


def plain(value: Any) -> str:
    """A string that can be written as UTF-8."""
    if not isinstance(value, str):
        raise Invalid("must be text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise Invalid("is not valid Unicode text") from None
    return value


def choice(choices: Iterable[str]) -> Callable[[Any], str]:
    """A reader of one of the choices."""
    allowed = tuple(choices)

    def read(value: Any) -> str:
        if value == "":
            raise Invalid("is empty", allowed)
        if not isinstance(value, str) or value not in allowed:
            raise Invalid("is not one of the choices", allowed, nearest(value, allowed))
        return value

    return read


def integer(least: int, most: int) -> Callable[[Any], int]:
    """A reader of whole numbers; ``"3"`` and ``3.0`` are whole, ``True`` is not a number."""

    def read(value: Any) -> int:
        number = _number(value, _INTEGER, "must be a whole number")
        if number != int(number):
            raise Invalid("must be a whole number", nearest=str(round(number)))
        _check_range(number, least, most)
        return int(number)

    return read


def amount(most: float) -> Callable[[Any], float]:
    """A reader of numbers from zero to ``most``."""

    def read(value: Any) -> float:
        number = _number(value, _NUMBER, "must be a number")
        _check_range(number, 0, most)
        return float(number)

    return read


def positive(most: float) -> Callable[[Any], float]:
    """A reader of numbers above zero, up to ``most``."""
    read_amount = amount(most)

    def read(value: Any) -> float:
        if _number(value, _NUMBER, "must be a number") <= 0:
            raise Invalid("must be more than 0")  # zero is out of range, and no nearest value
        return read_amount(value)

    return read


def boolean(value: Any) -> bool:
    """``True``, ``False`` and the words for them; nothing else, or "false" would be true."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise Invalid("must be true or false", ("true", "false"))


def _number(value: Any, pattern: re.Pattern[str], problem: str) -> float | int:
    if isinstance(value, str) and pattern.fullmatch(value.strip()):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Invalid("is empty" if value == "" else problem)
    if isinstance(value, float) and not math.isfinite(value):
        raise Invalid(problem)
    return value


def _check_range(number: float, least: float, most: float) -> None:
    if not least <= number <= most:
        raise Invalid(f"must be from {least} to {most}", nearest=str(least if number < least else most))
