"""Everything that is wrong with a form, in one error: also what the grant has against the part that can be read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.grant.authorize import authorize
from airflow_tpu.core.grant.create_request import Request
from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.core.grant.inventory import Inventory
from airflow_tpu.core.request.run_conf import read_form
from airflow_tpu.core.tpu.spec import TPUSpec
from airflow_tpu.errors import ConfigError, Fault, GrantError

_ASKED = ("accelerator_type", "zone", "tier", "deadline_hours", "internal_ips", "allow_paid_reason")


def with_grant(
    form: ConfigError, mapping: Mapping[str, Any], catalogue: Catalogue, grant: Grant, now: datetime
) -> ConfigError:
    """The error of a form, with the grant's reasons behind it, so that nobody mends one only to meet the other.

    :param form: what is wrong with the form by itself.
    :param mapping: what was submitted.
    :param now: aware instant from which the deadline counts.
    """
    faults = [*form.faults, *_grants_reasons(mapping, catalogue, grant, now)]
    return ConfigError(faults, form.subject, consequence=form.consequence)


def _grants_reasons(mapping: Mapping[str, Any], catalogue: Catalogue, grant: Grant, now: datetime) -> tuple[Fault, ...]:
    """None if the form does not say which TPU it wants, where and until when."""
    values, _ = read_form(mapping, catalogue)
    if any(name not in values for name in _ASKED):
        return ()
    kind = catalogue.types[values["accelerator_type"]]
    # Without a runtime version: the form has its own fault of that.
    spec = TPUSpec(grant.project_id, values["zone"], kind.name, "", values["tier"], internal_ips=values["internal_ips"])
    end = now + timedelta(hours=values["deadline_hours"])
    try:
        authorize(grant, Request(spec, kind, end, paid_reason=values["allow_paid_reason"]), Inventory(), now)
    except GrantError as error:
        return error.faults
    return ()
