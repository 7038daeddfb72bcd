# SPDX-License-Identifier: Apache-2.0
"""The questions that :func:`airflow_tpu.core.grant.authorize.authorize` asks, each answered with every reason."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from airflow_tpu.core.catalogue.address_prices import ADDRESS_SOURCE, ADDRESS_USD
from airflow_tpu.core.catalogue.runtimes import runtime_faults
from airflow_tpu.core.catalogue.transfer_rates import rate_between, sentence
from airflow_tpu.core.grant.allowance import Allowance
from airflow_tpu.core.grant.assignment import Assignment, RowUse, assign, rows_for
from airflow_tpu.core.grant.inventory import Inventory, InventoryItem
from airflow_tpu.core.grant.mismatch import mismatches
from airflow_tpu.core.tpu.identity import Airflows
from airflow_tpu.errors import Fault, GrantError, GrantExpired, GrantUnknown, GrantViolation, RowInUse

if TYPE_CHECKING:
    from airflow_tpu.core.grant.create_request import Request
    from airflow_tpu.core.grant.grant import Grant

_NAMED = 5


@dataclass(frozen=True)
class Objections:
    """Reasons against a request, by kind.

    :param violations: it is not covered.
    :param expired: the term is over or ends too soon.
    :param unknown: it could not be found out, which never counts as free.
    :param in_use: it has room as soon as other runs of the same Airflow have ended.
    """

    violations: tuple[Fault, ...] = ()
    expired: tuple[Fault, ...] = ()
    unknown: tuple[Fault, ...] = ()
    in_use: tuple[Fault, ...] = ()

    def __add__(self, other: Objections) -> Objections:
        return Objections(
            self.violations + other.violations,
            self.expired + other.expired,
            self.unknown + other.unknown,
            self.in_use + other.in_use,
        )

    def __bool__(self) -> bool:
        return bool(self.faults)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """All reasons."""
        return self.full + self.expired + self.unknown

    @property
    def full(self) -> tuple[Fault, ...]:
        """Why there is no room now, or never."""
        return self.violations + self.in_use

    @property
    def lasting(self) -> Objections:
        """Those that do not end by themselves."""
        return replace(self, in_use=())

    def error(self, unaccepted: tuple[Fault, ...] = (), advice: str = "") -> GrantError:
        """The error for these reasons; a violation outweighs the others, because waiting does not cure it.

        :param unaccepted: what a given consent does not accept of the bill.
        :param advice: how to accept it.
        """
        kinds = (self.violations, GrantViolation), (self.expired, GrantExpired), (self.unknown, GrantUnknown)
        kind = next((kind for faults, kind in kinds if faults), RowInUse)
        return kind((*self.faults, *unaccepted), "the request, against the grant,", advice=advice)


def coverage(grant: Grant, request: Request, inventory: Inventory) -> tuple[Allowance | None, Objections]:
    """The row that the TPU would belong to, or the reasons why there is none."""
    spec = request.spec
    if not rows_for(grant, request.accelerator.name, spec.zone, spec.tier):
        return None, Objections(violations=tuple(mismatches(grant, request.accelerator, spec)))
    if inventory.is_unreachable(spec.zone):
        problem = "did not answer, so what is in use there is not known; try again"
        return None, Objections(unknown=(Fault("zone", spec.zone, problem),))
    held = inventory.of_others(request.owner)
    others = assign(grant, held.items)
    odd = others.uncounted_in(spec.zone, spec.tier)
    if odd:
        problem = f"chips of {_names(odd, request)} cannot be counted"
        return None, Objections(unknown=(Fault("accelerator_type", odd[0].accelerator_type, problem),))
    uses = others.candidates(request.accelerator.name, spec.zone, spec.tier)
    for use in uses:
        if use.has_room(request.accelerator.chips):
            return use.row, Objections()
    faults = tuple(_full(use, request, others, inventory) for use in uses)
    return None, Objections(in_use=faults) if _will_fit(grant, request, held) else Objections(violations=faults)


def _will_fit(grant: Grant, request: Request, held: Inventory) -> bool:
    """Whether there is room once the other runs of this Airflow have ended, those around this one excepted."""
    staying = assign(grant, held.without_runs_of(request.airflow, request.around).items)
    uses = staying.candidates(request.accelerator.name, request.spec.zone, request.spec.tier)
    return any(use.has_room(request.accelerator.chips) for use in uses)


def project(grant: Grant, request: Request) -> Objections:
    """Whether the TPU is in the project that was allow-listed."""
    faults = []
    if request.spec.project_id != grant.project_id:
        problem = "is not the project the grant was given to"
        faults.append(Fault("project_id", request.spec.project_id, problem, (grant.project_id,), grant.project_id))
    if request.project_number not in (None, grant.project_number):
        problem = "is the number of the project that holds the grant's bucket, not the one the grant was given for"
        number = grant.project_number
        faults.append(Fault("project_number", request.project_number, problem, (number,), number))
    return Objections(violations=tuple(faults))


def term(grant: Grant, request: Request, now: datetime) -> Objections:
    """Whether the TPU will be gone before the grant is."""
    ends = _moment(grant.ends_at)
    if not grant.is_in_force(now) and now < grant.begins_at:
        fault = Fault("start", grant.start_text, f"the grant has not started; it starts at {_moment(grant.begins_at)}")
    elif not grant.is_in_force(now):
        fault = Fault("days", grant.days, f"the grant ended at {ends}; the feedback form can bring an extension")
    elif request.planned_end > grant.ends_at:
        hours = (grant.ends_at - now).total_seconds() / 3600
        problem = f"the run may last longer than the grant, which ends at {ends}"
        fault = Fault("deadline_hours", request.planned_end.isoformat(), problem, nearest=f"at most {hours:.1f} hours")
    else:
        return Objections()
    return Objections(expired=(fault,))


def buckets(request: Request) -> Objections:
    """Whether every bucket is where the TPU is: traffic between regions is the bill that grantees really got."""
    region = request.spec.region.upper()
    wrong, unknown = [], []
    for uri, location in request.buckets_elsewhere.items():
        field = request.uri_fields.get(uri, "bucket")
        if not location:
            unknown.append(Fault(field, uri, "its location may not be read", (region,), region))
        else:
            rate = rate_between(request.rates, location, region)
            problem = sentence(location, region, request.below.get(uri), rate)
            wrong.append(Fault(field, uri, problem, (region,), region))
    return Objections(violations=tuple(wrong), unknown=tuple(unknown))


def software(request: Request) -> Objections:
    """Whether the runtime version runs on the type; Google takes the request and the TPU never works."""
    return Objections(violations=tuple(runtime_faults(request.accelerator, request.spec.runtime_version)))


def addresses(request: Request) -> Objections:
    """Whether a slice of several workers does without an external address for each of them."""
    workers = request.billed_addresses
    if not workers:
        return Objections()
    usd = ADDRESS_USD[request.spec.tier.pool]
    problem = (
        f"would give each of {workers} workers an external IPv4 address: {usd} USD an hour each, even where the grant "
        f"covers the TPU ({ADDRESS_SOURCE}), and a new project may use 4 or 8 of them in a region"
    )
    return Objections(violations=(Fault("internal_ips", False, problem, ("true",), "true"),))


def _full(use: RowUse, request: Request, others: Assignment, inventory: Inventory) -> Fault:
    """That a row has no room, who holds it, and where there is some."""
    asked = use.row.units(request.accelerator.chips)
    problem = f"{asked} asked and {use.held} held are more than {use.row}"
    waits, holders = ([item for item in use.holders if item.waits is waits] for waits in (True, False))
    problem += f"; held by {_names(holders, request)}" if holders else ""
    problem += f"; waited for longer by {_names(waits, request)}" if waits else ""
    around = [item for item in use.holders if item.owner in request.around]
    problem += (
        f"; {_names(around, request)} is of the session around this one, which ends only after it" if around else ""
    )
    elsewhere = _with_room(request, others, inventory)
    return Fault(use.row.unit, asked, problem, nearest=elsewhere or f"{use.free} {use.row.unit} are free")


def _with_room(request: Request, others: Assignment, inventory: Inventory) -> str:
    """Another row for the same type with room, empty if there is none."""
    kind = request.accelerator
    for use in others.uses:
        row = use.row
        known = not (others.uncounted_in(row.zone, row.tier) or inventory.is_unreachable(row.zone))
        if row.is_of(kind.name, kind.generation) and known and use.has_room(kind.chips):
            return str(row)
    return ""


def _moment(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M} UTC"


def _names(items: list[InventoryItem], request: Request) -> str:
    """Name what takes the room, and whose it is where that is another Airflow: its people have to be asked."""
    shown = items[:_NAMED]
    others = {item.airflow for item in shown} - {None, request.airflow}
    airflows = Airflows(request.airflow, request.names() if others else {})
    named = ", ".join(
        f"{item} of {airflows.named(item.airflow)}" if item.airflow in others and item.airflow else str(item)
        for item in shown
    )
    return f"{named} and {len(items) - _NAMED} more" if len(items) > _NAMED else named
