"""What a person asks for in the trigger form, checked in full before anything is created."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow_tpu.core.catalogue.catalogue import AcceleratorType, Catalogue
from airflow_tpu.core.catalogue.runtimes import runtime_faults
from airflow_tpu.core.request import environment as script_environment
from airflow_tpu.core.request import paths, type_and_zone
from airflow_tpu.core.request.fields import Field, amount, boolean, choice, integer, positive, read_fields, text
from airflow_tpu.core.tpu.spec import Tier
from airflow_tpu.errors import ConfigError, Fault

QUEUED_RESOURCE = "queued-resource"
NODE = "node"
WAIT = "wait"
WALK = "walk"
MAX_DEADLINE_HOURS = 24 * 30
MAX_PREEMPTIONS = 1000
MAX_STALL_MINUTES = 60 * MAX_DEADLINE_HOURS


@dataclass(frozen=True)
class RunConf:
    """One run, as asked for; valid by construction through :meth:`parse`.

    :param script: path below ``include/train``, or a ``gs://`` URI.
    :param arguments: words handed to the script as they are.
    :param accelerator_type: a type of one worker VM.
    :param zone: a zone that offers it.
    :param tier: how the TPU is bought.
    :param runtime_version: software image of the VM.
    :param artifacts_uri: ``gs://bucket/prefix`` where results go.
    :param deadline_hours: hours from the start of the DAG run after which everything ends, at most 30 days.
    :param max_preemptions: how often the TPU may be taken away before the run gives up.
    :param stall_minutes: minutes without a sign of life of the script after which the run is stopped, 0 for never.
    :param start_within_hours: hours from the start of the DAG run within which its first TPU must be READY, or the
        run is skipped; 0 for as long as the deadline allows.
    :param provisioning: ``queued-resource`` waits for capacity in Google's queue, ``node`` asks directly.
    :param on_stock_out: ``wait`` for the zone that was asked for, or ``walk`` to other rows of the grant in its region.
    :param internal_ips: workers get no external address; Airflow must reach them inside the VPC.
    :param environment: extra environment of the script.
    :param requirements: path of a requirements file below ``include/train``, empty for none.
    :param allow_paid_reason: why a TPU outside the grant is wanted, empty to refuse it.
    :param data_uri: ``gs://bucket/object`` or ``gs://bucket/prefix`` of the data set, empty if the script brings it.
    :param seed: of everything random in the script.
    :param model: name under which the result competes with earlier ones, empty if it does not.
    """

    script: str
    arguments: tuple[str, ...]
    accelerator_type: str
    zone: str
    tier: Tier
    runtime_version: str
    artifacts_uri: str
    deadline_hours: float
    max_preemptions: int
    provisioning: str = QUEUED_RESOURCE
    internal_ips: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    requirements: str = ""
    allow_paid_reason: str = ""
    data_uri: str = ""
    seed: int = 0
    model: str = ""
    stall_minutes: int = 60
    on_stock_out: str = WAIT
    start_within_hours: float = 0.0

    @classmethod
    def parse(cls, mapping: Mapping[str, Any], catalogue: Catalogue) -> RunConf:
        """Read the form's flat strings and numbers.

        :param mapping: what was submitted; an empty runtime version means the type's default.
        :param catalogue: what Cloud TPU offers.
        :raises ConfigError: with every fault, each with the allowed values and the nearest one.
        """
        values, faults = readable(mapping, catalogue)
        if faults:
            raise ConfigError(faults, "the trigger form")
        default = catalogue.types[values["accelerator_type"]].default_runtime
        values["runtime_version"] = values["runtime_version"] or default
        return cls(**values)

    @property
    def queued(self) -> bool:
        """Whether the TPU is asked for by queued resource."""
        return self.provisioning == QUEUED_RESOURCE

    @property
    def walks(self) -> bool:
        """Whether the run may go to other rows of the grant when its zone has no capacity."""
        return self.on_stock_out == WALK

    def to_json(self) -> dict[str, Any]:
        """The one JSON form; :meth:`parse` reads it back."""
        changed = {"arguments": list(self.arguments), "tier": str(self.tier), "environment": dict(self.environment)}
        return {**asdict(self), **changed}


def readable(mapping: Mapping[str, Any], catalogue: Catalogue) -> tuple[dict[str, Any], list[Fault]]:
    """What of a form can be read, and every fault of it.

    :return: values by field, and the faults; of a type that cannot be had, where and with what it would run is
        checked all the same.
    """
    values, faults = read_fields(mapping, _fields(catalogue))
    kind = asked_type(mapping, catalogue)
    if kind is not None and kind.supported:
        faults += type_and_zone.zone_faults(kind, values.get("zone"), catalogue)
        faults += runtime_faults(kind, values.get("runtime_version"), catalogue.all_runtimes())
    return values, faults


def asked_type(mapping: Mapping[str, Any], catalogue: Catalogue) -> AcceleratorType | None:
    """The type of the catalogue that a form names, a slice included; None if it names none."""
    named = mapping.get("accelerator_type") if isinstance(mapping, Mapping) else None
    return catalogue.types.get(named) if isinstance(named, str) else None


def _fields(catalogue: Catalogue) -> dict[str, Field]:
    zones = sorted({zone for kind in catalogue.single_host_types() for zone in catalogue.zones_of(kind)})
    return {
        "script": Field(paths.script),
        "arguments": Field(script_environment.arguments, ""),
        "accelerator_type": Field(lambda value: type_and_zone.accelerator(value, catalogue)),
        "zone": Field(choice(zones)),
        "tier": Field(lambda value: Tier(choice(Tier)(value)), str(Tier.SPOT)),
        "runtime_version": Field(text(200, empty=True), ""),
        "artifacts_uri": Field(paths.gcs_uri),
        "deadline_hours": Field(positive(MAX_DEADLINE_HOURS), 24),
        "start_within_hours": Field(amount(MAX_DEADLINE_HOURS), 0),
        "max_preemptions": Field(integer(0, MAX_PREEMPTIONS), 20),
        "stall_minutes": Field(integer(0, MAX_STALL_MINUTES), 60),
        "provisioning": Field(choice((QUEUED_RESOURCE, NODE)), QUEUED_RESOURCE),
        "on_stock_out": Field(choice((WAIT, WALK)), WAIT),
        "internal_ips": Field(boolean, False),
        "environment": Field(script_environment.environment, "", sensitive=True),
        "requirements": Field(lambda value: paths.relative_path(value) if value != "" else "", ""),
        "allow_paid_reason": Field(lambda value: text(500, empty=True)(value).strip(), ""),
        "data_uri": Field(lambda value: paths.gcs_uri(value) if value != "" else "", ""),
        "seed": Field(integer(0, 2**31 - 1), 0),
        "model": Field(lambda value: paths.model_name(value) if value != "" else "", ""),
    }
