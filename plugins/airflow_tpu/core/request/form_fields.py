# SPDX-License-Identifier: Apache-2.0
"""The fields of the trigger form, one row each.

Whatever knows the fields is made from this table: the form itself (``params.py``), the check of what was submitted
(``run_conf.py``) and docs/form.md. A default, a limit or a word is written here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.request import environment, paths
from airflow_tpu.core.request.field_kinds import Choice, FieldKind, Flag, FromCatalogue, Hours, Text, Whole
from airflow_tpu.core.request.fields import REQUIRED, Field, optional, text
from airflow_tpu.core.request.type_and_zone import accelerator_type, network, service_account, subnetwork
from airflow_tpu.core.tpu.spec import NODE, QUEUED_RESOURCE, Tier

WAIT = "wait"
WALK = "walk"
RESUME = "resume"
REFUSE = "refuse"
MAX_DEADLINE_HOURS = 24 * 30
MAX_PREEMPTIONS = 1000
MAX_CONSENT_CHARS = 2000
"""A line of consent may name several URIs."""

WHAT, WHERE, RESULTS, LIMITS = "Run Parameters", "Which TPU", "Where results go", "Limits"
"""Sections of the form. Airflow opens the one of the first one's name, its own for fields without any."""


@dataclass(frozen=True)
class FormField:
    """One field.

    :param section: part of the form.
    :param title: what stands beside it.
    :param kind: how it is read and drawn, with its limits.
    :param help: what it means, as Markdown; the form and the documentation show it.
    :param default: value of a field that is left out; without one the field must be given.
    :param proposal: what the form shows of a field without default.
    :param from_grant: where in the grant the value of a field is found that is left out, in words.
    :param sensitive: no message shows its value, right or wrong.
    """

    section: str
    title: str
    kind: FieldKind
    help: str
    default: Any = REQUIRED
    proposal: str = ""
    from_grant: str = ""
    sensitive: bool = False

    @property
    def optional(self) -> bool:
        """Whether it may stay empty."""
        return isinstance(self.default, str) and not self.default

    def field(self, catalogue: Catalogue) -> Field:
        """Return how the field is read.

        :param catalogue: what Cloud TPU offers.
        """
        return Field(self.kind.reader(catalogue), self.default, self.sensitive)

    def schema(self, catalogue: Catalogue) -> dict[str, Any]:
        """Return the JSON schema from which Airflow draws the field.

        :param catalogue: what Cloud TPU offers.
        """
        words = {"title": self.title, "description_md": self.help, "section": self.section}
        return {**words, **self.kind.schema(catalogue, self.optional)}


Form = Mapping[str, FormField]
"""A table of fields by name."""


def _zones(catalogue: Catalogue) -> list[str]:
    return sorted({zone for kind in catalogue.single_host_types() for zone in catalogue.zones_of(kind)})


def _runtimes(catalogue: Catalogue) -> list[str]:
    return sorted({catalogue.types[name].default_runtime for name in catalogue.single_host_types()})


def _command(value: Any) -> Any:
    from airflow_tpu.core.request.command import command  # read when a form is, not each time a DAG file is parsed

    return command(value)


def _secrets(value: Any) -> Any:
    from airflow_tpu.core.request.references.secrets import secrets  # read when a form is, as above

    return secrets(value)


def _outputs(value: Any) -> Any:
    from airflow_tpu.core.request.outputs import outputs  # read when a form is, not each time a DAG file is parsed

    return outputs(value)


def _source(value: Any) -> str:
    from airflow_tpu.core.request.references.source_address import source_address

    return str(source_address(value)) if value else ""


def _framework(value: Any) -> Any:
    from airflow_tpu.core.request.references.framework import (
        framework,  # read when a form is, not each time a DAG is parsed
    )

    return framework(value)


def _paid_reason(value: Any) -> str:
    from airflow_tpu.core.request.consent import reason  # read when a form is, not each time a DAG file is parsed

    return reason(text(MAX_CONSENT_CHARS, empty=True)(value))


_WHAT: Form = {
    "script": FormField(
        WHAT,
        "Script",
        Text(paths.script, "relative path, `-m` and a module, or `gs://` URI", examples=("digits.py", "hello.py")),
        "Path below `include/train`, `-m package.module`, or a `gs://` URI. It runs in the folder of its project.",
        proposal="digits.py",
    ),
    "source": FormField(
        WHAT,
        "Project",
        Text(_source, "relative path, `gs://` archive or `https://` repository"),
        "What script, command and requirements are in: a folder below `include/train`, a `gs://` archive, or a git "
        "repository, `https://github.com/org/repo@v1.2`. All of it travels; it is the working directory.",
        "",
    ),
    "source_conn_id": FormField(
        WHAT,
        "Connection of the project",
        Text(text(200, empty=True), "at most 200 characters"),
        "Airflow connection with the token of a private git repository; its host is the server of the project.",
        "",
    ),
    "command": FormField(
        WHAT,
        "Command",
        Text(_command, "at most 100 kB", lines=True),
        "What you would type in the project's folder: `python -m pkg.train --lr 1e-3`. It stands in place of script "
        "and arguments; `$TRC_DATA_URI` and the other `TRC_` names are expanded.",
        "",
    ),
    "arguments": FormField(
        WHAT,
        "Arguments",
        Text(environment.arguments, "at most 100 kB", annotation="Words"),
        "Words for the script, quoted as in a shell, also pasted over several lines; `$TRC_DATA_URI` and the other "
        "`TRC_` names are expanded.",
        "",
    ),
    "requirements": FormField(
        WHAT,
        "Requirements",
        Text(optional(paths.relative_path), "relative path", examples=("requirements-tpu.txt",)),
        "Requirements file below `include/train`.",
        "",
    ),
    "framework": FormField(
        WHAT,
        "Framework",
        Text(
            _framework, "`tensorflow`, `jax` or `torch`, with a version", examples=("tensorflow 2.18", "jax", "torch")
        ),
        "Picks runtime version and packages for the type. The TPU VM tries it before the script starts.",
        "",
    ),
    "revision": FormField(
        WHAT,
        "Revision",
        Text(text(200, empty=True), "at most 200 characters"),
        "Branch, tag or commit of a project in git. Else `TRC_REVISION`: of code that the script fetches by itself.",
        "",
    ),
    "data_uri": FormField(
        WHAT,
        "Data set",
        Text(optional(paths.gcs_uri), "`gs://` URI"),
        "`gs://` URI for `TRC_DATA_URI`, in the TPU's region. `{{ ds }}` is the run's date, in every text.",
        "",
    ),
    "seed": FormField(WHAT, "Seed", Whole(0, 2**31 - 1), "`TRC_SEED`: the seed of everything random in the script.", 0),
    "environment": FormField(
        WHAT,
        "Environment",
        Text(environment.environment, "at most 100 kB; no name with `TRC_`", lines=True, annotation="Variables"),
        "`NAME=value`, one a line. No secrets.",
        "",
        sensitive=True,
    ),
    "secrets": FormField(
        WHAT,
        "Secrets",
        Text(_secrets, "references, no values", lines=True, annotation="Variables"),
        "`NAME = CONNECTION.password` or `NAME = variable:KEY`, one a line: Airflow connections and Variables whose "
        "values the script finds in its environment.",
        "",
        sensitive=True,
    ),
}

_WHERE: Form = {
    "accelerator_type": FormField(
        WHERE,
        "Accelerator type",
        FromCatalogue(Catalogue.single_host_types, "a [type](tpu-types.md) of one VM", accelerator_type),
        "Generation and size of the TPU.",
        from_grant="first row that fits",
    ),
    "zone": FormField(
        WHERE,
        "Zone",
        FromCatalogue(_zones, "a zone of the type, by the [price list](tpu-types.md#prices-by-list) or the grant"),
        "One that the grant names for this type; others cost money.",
        from_grant="first row that fits",
    ),
    "tier": FormField(
        WHERE,
        "Tier",
        Choice(dict.fromkeys(Tier, ""), Tier),
        "`spot` may vanish at any moment; the run then resumes.",
        str(Tier.SPOT),
        from_grant="first row that fits",
    ),
    "runtime_version": FormField(
        WHERE,
        "Runtime version",
        Text(text(200, empty=True), "a runtime version of the type's generation", examples=_runtimes),
        "Empty: the default of the type.",
        "",
    ),
    "provisioning": FormField(
        WHERE,
        "Provisioning",
        Choice({QUEUED_RESOURCE: "wait in Google's queue", NODE: "ask for the node now"}),
        "A request in the queue keeps its place until there is capacity, or until the deadline.",
        QUEUED_RESOURCE,
    ),
    "on_stock_out": FormField(
        WHERE,
        "Without capacity",
        Choice({WAIT: "for this zone", WALK: "to other rows of the grant"}),
        "`walk` stays in the region and asks for as many chips, perhaps of another type.",
        WAIT,
    ),
    "internal_ips": FormField(
        WHERE,
        "Internal IPs only",
        Flag(),
        "Workers get no external address, which is billed. Airflow must then reach them in their VPC.",
        False,
    ),
    "network": FormField(
        WHERE,
        "Network",
        Text(optional(network), "a name, or `projects/P/global/networks/NAME` of a shared VPC"),
        "VPC network of the TPU VM. Empty: the one named `default`, which not every project has.",
        "",
    ),
    "subnetwork": FormField(
        WHERE,
        "Subnetwork",
        Text(optional(subnetwork), "a name, or `projects/P/regions/R/subnetworks/NAME` in the region of the zone"),
        "Subnetwork of that network. Empty: the network's own for the region.",
        "",
    ),
    "service_account": FormField(
        WHERE,
        "Service account",
        Text(optional(service_account), "the e-mail of a service account"),
        "Account with which the TPU VM reads and writes buckets. Empty: the default account of Compute Engine.",
        "",
    ),
}

_RESULTS: Form = {
    "artifacts_uri": FormField(
        RESULTS,
        "Artifact bucket and prefix",
        Text(paths.gcs_uri, "`gs://bucket/prefix`"),
        "A bucket in the TPU's region: traffic between regions is billed.",
        proposal="gs://my-bucket/runs",
        from_grant="bucket",
    ),
    "outputs": FormField(
        RESULTS,
        "Declared outputs",
        Text(_outputs, "at most 50 patterns", lines=True),
        "What the run has to write, one a line: `model.h5`, `runs/**`, `gs://bucket/exports/{{ ds }}`. Without one of "
        "them it fails. Files are looked for in `TRC_OUTPUT_DIR` and in the working directory.",
        "",
    ),
    "model": FormField(
        RESULTS,
        "Model",
        Text(optional(paths.model_name), "a lower-case letter, then up to 39 of these, digits and hyphens"),
        "Name under which results compete. The script also gets the champion of this name, to measure both on the "
        "same examples.",
        "",
    ),
}

_LIMITS: Form = {
    "deadline_hours": FormField(
        LIMITS,
        "Deadline in hours",
        Hours(MAX_DEADLINE_HOURS, zero=False),
        "Hours from the start of the run; then it is stopped and the TPU deleted.",
        24,
    ),
    "start_within_hours": FormField(
        LIMITS,
        "Start within hours",
        Hours(MAX_DEADLINE_HOURS, zero=True),
        "Without a TPU by then the run is skipped, and is no failure. 0 waits until the deadline.",
        0,
    ),
    "max_preemptions": FormField(
        LIMITS,
        "Maximum preemptions",
        Whole(0, MAX_PREEMPTIONS, "times"),
        "How often the TPU may be taken away before the run gives up.",
        20,
    ),
    "stall_minutes": FormField(
        LIMITS,
        "Silence in minutes",
        Whole(0, 60 * MAX_DEADLINE_HOURS, "minutes"),
        "When neither the log nor `progress.json` nor any file of the output or the checkpoints has changed for so "
        "long, the run is stopped and tried again. 0 switches this off.",
        60,
    ),
    "unreachable_minutes": FormField(
        LIMITS,
        "Unreachable in minutes",
        Whole(1, 60, "minutes"),
        "How long a TPU VM may not answer that the API calls READY, such as a frozen one, before it is deleted and "
        "replaced. It is held meanwhile; the log says what that costs.",
        5,
    ),
    "on_changed_code": FormField(
        LIMITS,
        "Changed code",
        Choice({RESUME: "resume and say so", REFUSE: "fail before the script starts"}),
        "When a run would resume from a checkpoint that other code has saved: the model would be a mixture.",
        RESUME,
    ),
    "allow_paid_reason": FormField(
        LIMITS,
        "Reason for paid use",
        Text(_paid_reason, f"at most {MAX_CONSENT_CHARS} characters"),
        "Empty refuses what the grant does not cover. The refusal prints the line that accepts it, for you to end with "
        "a reason: [what, how much, until when](grant.md#paying-on-purpose).",
        "",
    ),
}

FORM: Form = {**_WHAT, **_WHERE, **_RESULTS, **_LIMITS}
"""Every field, in the order of the form."""

FROM_GRANT = frozenset(name for name, row in FORM.items() if row.from_grant)
"""The fields that the grant fills in where they are left out."""
