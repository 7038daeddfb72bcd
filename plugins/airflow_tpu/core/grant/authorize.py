# SPDX-License-Identifier: Apache-2.0
"""May this TPU be created now, and which row of the grant covers it? The one place that makes a permit."""

from __future__ import annotations

from dataclasses import InitVar, dataclass
from datetime import datetime
from typing import Any

from airflow_tpu.core import json_form
from airflow_tpu.core.grant import checks
from airflow_tpu.core.grant.allowance import Allowance
from airflow_tpu.core.grant.bill import Bill
from airflow_tpu.core.grant.create_request import Request
from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.core.grant.inventory import Inventory
from airflow_tpu.core.grant.reservations import NOTHING, Reservations
from airflow_tpu.core.tpu.spec import TPUSpec
from airflow_tpu.errors import Fault, GrantViolation

_SEAL = object()


@dataclass(frozen=True)
class Permit:
    """Proof that one TPU may be created now; only :func:`authorize` can make one.

    :param spec: what it permits.
    :param allowance: the row that covers the TPU, None when none does and it will be billed.
    :param chips: chips it takes.
    :param paid_reason: the line that accepts what is not free, empty when the grant covers it.
    :param reasons: what is not free, or not known to be.
    :raises TypeError: if any other code makes one.
    """

    spec: TPUSpec
    allowance: Allowance | None
    chips: int
    paid_reason: str = ""
    reasons: tuple[str, ...] = ()
    seal: InitVar[object] = None

    def __post_init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise TypeError("a Permit is made by authorize() only")

    @property
    def allowance_text(self) -> str | None:
        """The row in words, None when none covers the TPU."""
        return None if self.allowance is None else str(self.allowance)

    def check(self, spec: TPUSpec) -> None:
        """Refuse the create of any other TPU.

        :raises GrantViolation: if the TPU is not the permitted one.
        """
        if spec != self.spec:
            raise GrantViolation(
                [Fault("spec", str(spec), "is not what was permitted", (str(self.spec),))], "the permit"
            )

    def __str__(self) -> str:
        kind = f"{self.spec.tier} {self.spec.accelerator_type} in {self.spec.zone}"
        lines = [f"{kind}: {'NOT covered by the grant' if self.allowance is None else f'covered by {self.allowance}'}"]
        lines += [f"  NOT FREE: {reason}" for reason in self.reasons]
        return "\n".join(lines + ([f"  accepted: {self.paid_reason}"] if self.paid_reason else []))

    def to_json(self) -> dict[str, Any]:
        """Return the permit as the XCom shows it: the allowance by its text, the TPU by the form of ``json_form``.

        It is not that form itself, which could be read back: a permit holds for now only.
        """
        return {
            "spec": json_form.to_json(self.spec),
            "allowance": self.allowance_text,
            "chips": self.chips,
            "paid_reason": self.paid_reason,
            "reasons": list(self.reasons),
        }


def authorize(
    grant: Grant, request: Request, inventory: Inventory, now: datetime, reserved: Reservations = NOTHING
) -> Permit:
    """Decide, from the grant, the project's whole inventory and the buckets' locations.

    :param grant: what may be used.
    :param request: the TPU, and what surrounds it.
    :param inventory: nodes and queued resources of every owner, listed just now.
    :param now: aware instant.
    :param reserved: chips that runs have reserved and the API cannot show yet; they count like a TPU.
    :return: a permit with the allowance that covers the TPU. If something is not free and the request accepts what it
        costs, a permit that says so: without an allowance, unless only what is around the TPU was at fault.
    :raises GrantViolation: it is not covered.
    :raises GrantExpired: nothing but the term is against it.
    :raises GrantUnknown: nothing but what could not be read is against it.
    :raises RowInUse: nothing but other runs of its Airflow is in its way.
    """
    held = reserved.added_to(inventory, now).also(reserved.ahead_of(request.owner, request.airflow, now))
    allowance, objections = checks.coverage(grant, request, held)
    objections += checks.project(grant, request)
    objections += checks.term(grant, request, now)
    unfit = checks.software(request)
    beside = checks.buckets(request) + checks.addresses(request)
    reasons = objections + unfit + beside
    bill = Bill.of(request, now, covered=not objections)
    unaccepted = bill.unaccepted(request.paid_reason, now) if reasons else ()
    if unfit:  # money does not make a runtime version run
        raise reasons.error()
    if reasons and (unaccepted or not request.paid_reason):
        if objections.in_use and not objections.lasting and _accepted(request, beside, now):
            raise checks.Objections(in_use=objections.in_use).error(advice=bill.advice(now))
        raise reasons.error(unaccepted, bill.advice(now))
    if objections:
        allowance = None
    paid_reason = request.paid_reason if reasons else ""
    texts = tuple(str(fault) for fault in reasons.faults)
    return Permit(request.spec, allowance, request.accelerator.chips, paid_reason, texts, seal=_SEAL)


def _accepted(request: Request, beside: checks.Objections, now: datetime) -> bool:
    """Whether the request may be created as soon as its row has room: nothing else is billed, or that is accepted."""
    if not beside:
        return True
    return bool(request.paid_reason) and not Bill.of(request, now, covered=True).unaccepted(request.paid_reason, now)
