# SPDX-License-Identifier: Apache-2.0
"""The framework that a person asks for, and what it means for the TPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_tpu.core.catalogue.catalogue import AcceleratorType, Catalogue
from airflow_tpu.core.catalogue.frameworks import (
    FRAMEWORKS,
    Stack,
    WantedFramework,
    nearest_framework,
    resolve,
    stack_fault,
    wanted,
)
from airflow_tpu.core.request.fields import Invalid, plain
from airflow_tpu.errors import Fault


def framework(value: Any) -> WantedFramework | None:
    """Read a framework, with its version perhaps; None for an empty text.

    :raises Invalid: it is another one.
    """
    text = plain(value).strip()
    if not text:
        return None
    found = wanted(text)
    if found is None:
        raise Invalid("is no framework with a version", FRAMEWORKS, nearest_framework(text))
    return found


def resolved(
    values: Mapping[str, Any], kind: AcceleratorType, catalogue: Catalogue
) -> tuple[Stack | None, list[Fault]]:
    """Return what brings the framework of a form to its type, and why nothing does.

    :param values: of the form, as far as they could be read.
    :param kind: the type.
    :param catalogue: what there is.
    """
    asked = values.get("framework")
    if asked is None:
        return None, []
    found = resolve(kind, asked, catalogue.frameworks)
    if isinstance(found, Fault):
        return None, [found]
    runtime = values.get("runtime_version")
    fault = stack_fault(found, kind, runtime) if runtime else None
    return found, [fault] if fault is not None else []
