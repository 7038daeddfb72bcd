# SPDX-License-Identifier: Apache-2.0
"""Report the faults of a form and the grant's objections to the part that can be read in one error."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.grant.alternatives import ASKED
from airflow_tpu.core.grant.authorize import authorize
from airflow_tpu.core.grant.create_request import Request
from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.core.grant.inventory import Inventory
from airflow_tpu.core.request.fields import shown
from airflow_tpu.core.request.run_conf import read_form
from airflow_tpu.core.tpu.spec import TPUSpec
from airflow_tpu.errors import ConfigError, Fault, GrantError

_ASKED = ("accelerator_type", "zone", "tier", "deadline_hours", "internal_ips", "allow_paid_reason")


def with_grant(
    form: ConfigError, mapping: Mapping[str, Any], catalogue: Catalogue, grant: Grant, now: datetime
) -> ConfigError:
    """Add the grant's objections to the error of a form, so that both can be mended at once.

    :param form: faults of the form by itself.
    :param mapping: what was submitted, completed from the grant.
    :param now: aware instant from which the deadline counts.
    """
    faults = [*form.faults, *_without_a_row(mapping, grant), *_grants_reasons(mapping, catalogue, grant, now)]
    return ConfigError(faults, form.subject, consequence=form.consequence)


def _without_a_row(asked: Mapping[str, Any], grant: Grant) -> list[Fault]:
    """A fault if type or zone could not be taken from the grant, because none of its rows fits the rest."""
    missing = [name for name in ASKED[:2] if name not in asked]
    named = [name for name in ASKED if name in asked]
    if not missing or not named:
        return []
    wanted = " and ".join(f"{name} {asked[name]}" for name in named[1:])
    problem = f"no row of the grant fits{f' together with {wanted}' if wanted else ''}, so give {' and '.join(missing)}"
    return [Fault(named[0], shown(asked[named[0]]), problem, tuple(map(str, grant.allowances)))]


def _grants_reasons(mapping: Mapping[str, Any], catalogue: Catalogue, grant: Grant, now: datetime) -> tuple[Fault, ...]:
    """None if the form does not say which TPU it wants, where and until when."""
    values, _ = read_form(mapping, catalogue)
    if any(name not in values for name in _ASKED):
        return ()
    kind = catalogue.types[values["accelerator_type"]]
    # Without a runtime version: the form has its own fault of that.
    spec = TPUSpec(grant.project_id, values["zone"], kind.name, "", values["tier"], internal_ips=values["internal_ips"])
    end = now + timedelta(hours=values["deadline_hours"])
    price = catalogue.price(spec.accelerator_type, spec.zone, spec.tier)
    request = Request(spec, kind, end, paid_reason=values["allow_paid_reason"], price=price)
    try:
        authorize(grant, request, Inventory(), now)
    except GrantError as error:
        return error.faults
    return ()
