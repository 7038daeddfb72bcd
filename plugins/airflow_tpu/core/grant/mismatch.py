# SPDX-License-Identifier: Apache-2.0
"""How a TPU that no row of the grant covers differs from the nearest row."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_tpu.core.catalogue.catalogue import AcceleratorType
from airflow_tpu.core.grant.allowance import DEVICES, Allowance
from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.core.tpu.spec import TPUSpec
from airflow_tpu.errors import Fault


def mismatches(grant: Grant, kind: AcceleratorType, spec: TPUSpec) -> list[Fault]:
    """One fault for each of type, zone and tier that differs; taking all the nearest values makes it a granted one.

    The console does not say which create is covered; a v3-8 in the wrong zone is simply billed.
    """
    rows = grant.allowances
    row = max(rows, key=lambda one: _likeness(one, kind, spec))
    faults = []
    if not row.is_of(kind.name, kind.generation):
        problem = _type_problem(row, kind)
        faults.append(Fault("accelerator_type", kind.name, problem, _distinct(map(_kind, rows)), _kind(row)))
    same = [one for one in rows if _kind(one) == _kind(row)]
    if row.zone != spec.zone:
        zones = _distinct(one.zone for one in same)
        faults.append(Fault("zone", spec.zone, f"the grant has {row}", zones, row.zone))
    if row.tier is not spec.tier.pool:
        tiers = _distinct(str(one.tier) for one in same if one.zone == row.zone)
        faults.append(Fault("tier", str(spec.tier), f"the grant has {row}", tiers, str(row.tier)))
    return faults


def _likeness(row: Allowance, kind: AcceleratorType, spec: TPUSpec) -> tuple[bool, bool, bool, bool]:
    alike = row.zone == spec.zone, row.tier is spec.tier.pool
    return (row.is_of(kind.name, kind.generation), row.generation == kind.generation, *alike)


def _type_problem(row: Allowance, kind: AcceleratorType) -> str:
    if row.unit == DEVICES and row.generation == kind.generation and kind.hosts > 1:
        return f"is a pod slice, and devices cannot form pods; the grant has {row}"
    return "is not in the grant"


def _kind(row: Allowance) -> str:
    return row.accelerator_type or row.generation


def _distinct(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))
