# SPDX-License-Identifier: Apache-2.0
"""What a person asks for in the trigger form, checked in full before anything is created."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.catalogue.frameworks import Stack
from airflow_tpu.core.catalogue.runtimes import runtime_faults
from airflow_tpu.core.request.command import Command
from airflow_tpu.core.request.fields import Invalid, fault_of, read_fields, shown
from airflow_tpu.core.request.form_fields import FORM, REFUSE, WALK, Form
from airflow_tpu.core.request.references.framework import resolved
from airflow_tpu.core.request.references.secrets import SecretReference
from airflow_tpu.core.request.references.source_address import (
    Address,
    GitAddress,
    reference,
    source_address,
)
from airflow_tpu.core.request.storage_uris import NamedURI, expanded, named_uris, outermost, unset_bucket
from airflow_tpu.core.request.type_and_zone import subnetwork_faults, type_faults, zone_faults
from airflow_tpu.core.request.unknown_fields import unknown_field
from airflow_tpu.core.tpu.spec import QUEUED_RESOURCE, Tier
from airflow_tpu.errors import ConfigError, Fault


@dataclass(frozen=True)
class RunConf:
    """One run, as asked for; valid by construction through :meth:`parse`.

    An attribute for each row of :data:`airflow_tpu.core.request.form_fields.FORM`, which says what it means and what
    it is when it is left out.
    """

    script: str
    source: str
    source_conn_id: str
    command: Command | None
    arguments: tuple[str, ...]
    requirements: str
    framework: Stack | None
    revision: str
    data_uri: str
    seed: int
    environment: Mapping[str, str]
    secrets: Mapping[str, SecretReference]
    accelerator_type: str
    zone: str
    tier: Tier
    runtime_version: str
    provisioning: str
    on_stock_out: str
    internal_ips: bool
    network: str
    subnetwork: str
    service_account: str
    artifacts_uri: str
    outputs: tuple[str, ...]
    model: str
    deadline_hours: float
    start_within_hours: float
    max_preemptions: int
    stall_minutes: int
    unreachable_minutes: int
    on_changed_code: str
    allow_paid_reason: str

    @classmethod
    def parse(cls, mapping: Mapping[str, Any], catalogue: Catalogue, form: Form = FORM) -> RunConf:
        """Read the form's flat strings and numbers.

        :param mapping: what was submitted; an empty runtime version means the type's default.
        :param catalogue: what Cloud TPU offers.
        :param form: the fields there are.
        :raises ConfigError: with every fault, each with the allowed values and the nearest one.
        """
        values, faults = read_form(mapping, catalogue, form)
        if faults:
            raise ConfigError(faults, "the trigger form")
        kind = catalogue.types[values["accelerator_type"]]
        stack, _ = resolved(values, kind, catalogue)
        runtime = values["runtime_version"] or (stack.runtime if stack is not None else kind.default_runtime)
        return cls(**{**values, "runtime_version": runtime, "framework": stack})

    @property
    def queued(self) -> bool:
        """Whether the TPU is asked for by queued resource."""
        return self.provisioning == QUEUED_RESOURCE

    @property
    def address(self) -> Address | None:
        """Where the project comes from, None if the script stands for itself."""
        if not self.source:
            return None
        found = source_address(self.source)
        return found.at(self.revision) if isinstance(found, GitAddress) else found

    @property
    def named_uris(self) -> tuple[NamedURI, ...]:
        """Every ``gs://`` URI of the form with the field that it stands in, that of the artifacts first."""
        variables = "\n".join(f"{name}={value}" for name, value in self.environment.items())
        texts = {
            "arguments": "\n".join(self.arguments),
            "command": self.expanded(self.command.text) if self.command is not None else "",
            "environment": variables,
        }
        written = named_uris("outputs", "\n".join(self.bucket_outputs))
        found = [NamedURI("artifacts_uri", self.artifacts_uri, self.artifacts_uri)]
        for field, uri in (("script", self.script), ("data_uri", self.data_uri)):
            found += [NamedURI(field, uri, uri, is_read=True)] if uri.startswith("gs://") else []
        found += [replace(named, is_read=False) for named in written]
        return (*found, *(named for field, text in texts.items() for named in named_uris(field, text)))

    def expanded(self, text: str) -> str:
        """Return a text for the shell of the run with the variables that the form gives it."""
        given = self.command.environment if self.command is not None else {}
        return expanded(text, {**self.environment, **given})

    @property
    def packages(self) -> tuple[str, ...]:
        """What the framework needs beside the image."""
        return () if self.framework is None else self.framework.packages

    @property
    def bucket_outputs(self) -> tuple[str, ...]:
        """Declared outputs that the run writes straight to a bucket."""
        return tuple(pattern for pattern in self.outputs if pattern.startswith("gs://"))

    @property
    def file_outputs(self) -> tuple[str, ...]:
        """Declared outputs that the run leaves on the TPU VM."""
        return tuple(pattern for pattern in self.outputs if not pattern.startswith("gs://"))

    @property
    def inputs(self) -> tuple[str, ...]:
        """Every ``gs://`` URI of the form but that of the artifacts, one for what lies below another."""
        uris = outermost(named.uri for named in self.named_uris if named.field != "artifacts_uri")
        return tuple(uri for uri in uris if uri != self.artifacts_uri)

    @property
    def refuses_changed_code(self) -> bool:
        """Whether the run fails rather than resume from a checkpoint that other code has saved."""
        return self.on_changed_code == REFUSE

    @property
    def searches_capacity(self) -> bool:
        """Whether the run may ask for other rows of the grant when its zone has no capacity."""
        return self.on_stock_out == WALK


def read_form(
    mapping: Mapping[str, Any], catalogue: Catalogue, form: Form = FORM
) -> tuple[dict[str, Any], list[Fault]]:
    """Read what can be read of a form, and list every fault of it.

    :return: values by field, and the faults. A type that exists is among the values although it cannot be driven, so
        that zone, runtime version and grant are checked all the same.
    """
    fields = {name: row.field(catalogue) for name, row in form.items()}
    values, faults = read_fields(mapping, fields, unknown=unknown_field)
    faults += _source_faults(values)
    faults += [
        Fault("secrets", name, "is in the field environment too; give it once")
        for name in values.get("secrets", {}).keys() & values.get("environment", {}).keys()
    ]
    faults += _bucket_faults(values)
    faults += subnetwork_faults(values.get("subnetwork"), values.get("zone"))
    if values.get("command") is not None or any(fault.field == "command" for fault in faults):
        values["script"], faults = "", [fault for fault in faults if fault.field != "script"]
        if values.get("arguments"):
            faults.append(Fault("arguments", shown(mapping["arguments"]), "belong into the command that is given"))
    kind = catalogue.types.get(values.get("accelerator_type", ""))
    if kind is not None:
        faults += type_faults(kind, catalogue)
    if kind is not None and kind.supported:
        faults += zone_faults(kind, values.get("zone"), catalogue)
        faults += runtime_faults(kind, values.get("runtime_version"), catalogue.all_runtimes())
        faults += resolved(values, kind, catalogue)[1]
    return values, faults


def _bucket_faults(values: Mapping[str, Any]) -> list[Fault]:
    """A bucket that a command names by a variable which nothing sets."""
    command = values.get("command")
    known = {*values.get("environment", {}), *values.get("secrets", {}), *(command.environment if command else ())}
    name = unset_bucket(command.text, known) if command is not None else ""
    problem = f"names a bucket by ${name}, which nothing sets; give {name}=... in the field environment"
    return [Fault("command", command.text, problem)] if command is not None and name else []


def _source_faults(values: Mapping[str, Any]) -> list[Fault]:
    """What does not fit together of a project, its revision and its connection."""
    address = source_address(values["source"]) if values.get("source") else None
    revision, conn_id = values.get("revision", ""), values.get("source_conn_id", "")
    if address is not None and not isinstance(address, GitAddress):
        problem = "is for a project in git, and this one is not"
        return [Fault("source_conn_id", conn_id, problem)] if conn_id else []
    if address is None or not revision:
        return []
    if address.ref and revision != address.ref:
        return [Fault("revision", revision, f"differs from {address.ref!r}, which source names after '@'")]
    try:
        reference(revision)
    except Invalid as error:
        return [fault_of("revision", revision, error)]
    return []
