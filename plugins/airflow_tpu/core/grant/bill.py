# SPDX-License-Identifier: Apache-2.0
"""What a request costs that the grant does not cover, and whether a person has accepted exactly that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import ROUND_UP, Decimal

from airflow_tpu.core.catalogue.address_prices import ADDRESS_SOURCE, ADDRESS_USD
from airflow_tpu.core.catalogue.transfer_rates import rate_between
from airflow_tpu.core.grant.create_request import Request
from airflow_tpu.core.request.consent import Consent
from airflow_tpu.core.request.fields import shown
from airflow_tpu.errors import Fault

FIELD = "allow_paid_reason"
LONGEST = timedelta(days=92)
"""How far ahead a consent may reach: a nightly DAG asks its owner again every quarter."""

_TO_FILL_IN = "..."
_TIME_TO_ANSWER = timedelta(days=1)
_CENT, _GIB = Decimal("0.01"), Decimal(1024**3)
_QUARTERS = 4  # of an hour; the check itself takes some seconds of the hours that it prices


@dataclass(frozen=True)
class Cost:
    """One item of a bill.

    :param item: what is paid for, as a consent names it.
    :param usd: US dollars at most, None if that is unknown.
    :param how: where the figure comes from.
    """

    item: str
    usd: Decimal | None
    how: str

    def __str__(self) -> str:
        amount = "unknown" if self.usd is None else f"{_cents(self.usd)} USD"
        return f"{self.item}: {amount} ({self.how})"


@dataclass(frozen=True)
class Bill:
    """What one run may cost at list price.

    :param costs: what is paid for.
    :param until: aware instant by which all of it has ended.
    """

    costs: tuple[Cost, ...]
    until: datetime

    @classmethod
    def of(cls, request: Request, now: datetime, covered: bool) -> Bill:
        """Price a request.

        :param now: aware instant from which on it is billed.
        :param covered: whether the TPU itself is free.
        """
        hours = _hours(request.planned_end - now)
        costs = (*(() if covered else [_tpu(request, hours)]), *_traffic(request), *_addresses(request, hours))
        return cls(costs, request.planned_end)

    @property
    def usd(self) -> Decimal:
        """US dollars at most, as far as the prices are known."""
        return _cents(sum((cost.usd for cost in self.costs if cost.usd is not None), Decimal(0)))

    @property
    def unknown(self) -> bool:
        """Whether there is more, of an unknown amount."""
        return any(cost.usd is None for cost in self.costs)

    def unaccepted(self, line: str, now: datetime) -> tuple[Fault, ...]:
        """What a consent leaves open, none if it accepts all of the bill or is empty.

        :param line: what the person has written.
        """
        if not line:
            return ()
        consent = Consent.parse(line)
        if consent is None:
            problem = "is a reason, but accepts no bill: it must say what is paid for, how much and until when"
            return (Fault(FIELD, shown(line), problem),)
        return tuple(Fault(FIELD, shown(line), problem) for problem in self._differences(consent, now))

    def advice(self, now: datetime) -> str:
        """What it would cost, and how to accept that."""
        until = min(_next_hour(self.until + _TIME_TO_ANSWER), now + LONGEST)
        what = ", ".join(cost.item for cost in self.costs)
        line = Consent(what, self.usd, self.unknown, max(until, self.until), _TO_FILL_IN)
        return "\n".join(
            [
                f"What it would cost at most, until {_moment(self.until)}:",
                *(f"  - {cost}" for cost in self.costs),
                f"To pay for it put this line into {FIELD}, with your reason for the dots. Amount and end are limits, "
                f"which you may change; the end is at most {LONGEST.days} days ahead.",
                str(line),
            ]
        )

    def _differences(self, consent: Consent, now: datetime) -> Iterator[str]:
        others = [cost.item for cost in self.costs if not consent.names(cost.item)]
        if others:
            yield f"accepts {consent.what}, not {', '.join(others)}"
        if self.usd > consent.usd:
            yield f"accepts at most {consent.usd} USD a run, and this one may cost {self.usd} USD"
        if self.unknown and not consent.unknown:
            yield "accepts no unknown amount, and part of this bill is unknown"
        if self.until > consent.until:
            yield f"accepts a bill until {_moment(consent.until)}, and the run may last until {_moment(self.until)}"
        if consent.until > now + LONGEST:
            yield f"accepts bills until {_moment(consent.until)}, which is more than {LONGEST.days} days ahead"


def _tpu(request: Request, hours: Decimal) -> Cost:
    spec, price, chips = request.spec, request.price, request.accelerator.chips
    item = f"{spec.tier} {spec.accelerator_type} in {spec.zone} of {spec.project_id}"
    if price is None:
        return Cost(item, None, "no price is published")
    each = price.usd_per_chip_hour
    how = f"{chips} chips for {hours.normalize():f} h at {each} USD per chip-hour, {price.source}, read {price.date}"
    return Cost(item, each * chips * hours, how)


def _traffic(request: Request) -> Iterator[Cost]:
    """One pass over each bucket elsewhere; what a run writes is not known before."""
    for uri, location in request.buckets_elsewhere.items():
        below = request.below.get(uri)
        rate = rate_between(request.rates, location, request.spec.region) if location else None
        counted = below is not None and below.complete and below.size > 0
        usd = rate.high * below.size / _GIB if rate is not None and below is not None and counted else None
        how = "size or rate is unknown" if usd is None else f"one pass over it, {rate}"
        yield Cost(f"traffic with {uri} in {location or 'an unknown place'}", usd, how)


def _addresses(request: Request, hours: Decimal) -> Iterator[Cost]:
    each = ADDRESS_USD[request.spec.tier.pool]
    if number := request.billed_addresses:
        how = f"{hours.normalize():f} h at {each} USD an hour, {ADDRESS_SOURCE}"
        yield Cost(f"{number} external addresses", each * number * hours, how)


def _hours(length: timedelta) -> Decimal:
    quarters = Decimal(length.total_seconds()) / 3600 * _QUARTERS
    return max(quarters.to_integral_value(ROUND_UP), Decimal(0)) / _QUARTERS


def _cents(usd: Decimal) -> Decimal:
    return usd.quantize(_CENT, ROUND_UP)


def _next_hour(at: datetime) -> datetime:
    full = at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    return full + timedelta(hours=1)


def _moment(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
