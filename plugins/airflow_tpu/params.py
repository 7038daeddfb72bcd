"""The trigger form, made from the catalogue and the grant: flat strings and numbers, each with help."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.core.request.run_conf import (
    MAX_DEADLINE_HOURS,
    MAX_PREEMPTIONS,
    MAX_STALL_MINUTES,
    NODE,
    QUEUED_RESOURCE,
    WAIT,
    WALK,
)
from airflow_tpu.core.tpu.spec import Tier
from airflow_tpu.stores.grants import grant_at_parse, load_catalogue

WHAT, WHERE, RESULTS, LIMITS = "What to run", "Which TPU", "Where results go", "Limits"


def train_params(script: str = "digits.py", model: str = "", start_within_hours: float = 0) -> dict[str, Param]:
    """Parameters of a DAG that trains on a TPU; defaults come from the grant.

    :param script: default script below ``include/train``.
    :param model: default name under which results compete.
    :param start_within_hours: default of the window for the first TPU, 0 for none.
    """
    catalogue, grant = load_catalogue(), grant_at_parse()
    return {**_what(script), **_where(catalogue, grant), **_results(grant, model), **_limits(start_within_hours)}


def _what(script: str) -> dict[str, Param]:
    return {
        "script": _text(
            script,
            WHAT,
            "Script",
            "Path below `include/train`, or a `gs://` URI.",
            examples=["digits.py", "hello.py"],
        ),
        "arguments": _text("", WHAT, "Arguments", "Words for the script, quoted as in a shell.", empty=True),
        "requirements": _text(
            "",
            WHAT,
            "Requirements",
            "Requirements file below `include/train`.",
            empty=True,
            examples=["requirements-tpu.txt"],
        ),
        "data_uri": _text("", WHAT, "Data set", "`gs://` URI for `TRC_DATA_URI`, in the TPU's region.", empty=True),
        "seed": Param(
            0,
            type="integer",
            minimum=0,
            maximum=2**31 - 1,
            title="Seed",
            description_md="`TRC_SEED`: of everything random in the script.",
            section=WHAT,
        ),
        "environment": _text("", WHAT, "Environment", "`NAME=value`, one a line. No secrets.", empty=True, lines=True),
    }


def _where(catalogue: Catalogue, grant: Grant | None) -> dict[str, Param]:
    types = list(catalogue.single_host_types())
    zones = sorted({zone for kind in types for zone in catalogue.zones_of(kind)})
    runtimes = sorted({catalogue.types[name].default_runtime for name in types})
    first = _first_choice(catalogue, grant) or (types[0], catalogue.zones_of(types[0])[0], Tier.SPOT)
    free = "\n".join(f"* {row}" for row in grant.allowances) if grant else "The grant is read when the run starts."
    return {
        "accelerator_type": _choice(types, first[0], "Accelerator type", f"The grant covers:\n{free}"),
        "zone": _choice(
            zones, first[1], "Zone", "One that the grant names for this type; others need a reason for paid use."
        ),
        "tier": _choice(list(Tier), first[2], "Tier", "`spot` may vanish at any moment; the run then resumes."),
        "runtime_version": _text(
            "", WHERE, "Runtime version", "Empty: the default of the type.", empty=True, examples=runtimes
        ),
        "provisioning": _choice(
            {QUEUED_RESOURCE: "wait in Google's queue", NODE: "ask for the node now"},
            QUEUED_RESOURCE,
            "Provisioning",
            "A request in the queue keeps its place until there is capacity, or until the deadline.",
        ),
        "on_stock_out": _choice(
            {WAIT: "for this zone", WALK: "to other rows of the grant"},
            WAIT,
            "Without capacity",
            "A walk stays in the region and asks for as many chips, perhaps of another type.",
        ),
        "internal_ips": Param(
            False,
            type="boolean",
            title="Internal IPs only",
            section=WHERE,
            description="Workers get no external address, which is billed. Airflow must then reach them in their VPC.",
        ),
    }


def _results(grant: Grant | None, model: str) -> dict[str, Param]:
    uri = f"gs://{grant.bucket}/{grant.prefix}/runs" if grant else "gs://my-bucket/runs"
    text = "A bucket in the TPU's region: traffic between regions is billed."
    champion = "The script also gets the champion of this name, to measure both on the same examples."
    return {
        "artifacts_uri": _text(uri, RESULTS, "Artifact bucket and prefix", text),
        "model": _text(model, RESULTS, "Model", champion, empty=True),
    }


def _limits(start_within_hours: float) -> dict[str, Param]:
    return {
        "deadline_hours": _hours(
            24, "Deadline in hours", "After this the run is stopped and the TPU deleted.", exclusiveMinimum=0
        ),
        "start_within_hours": _hours(
            start_within_hours,
            "Start within hours",
            "Without a TPU by then the run is skipped, and is no failure. 0 waits until the deadline.",
            minimum=0,
        ),
        "max_preemptions": Param(
            20,
            type="integer",
            minimum=0,
            maximum=MAX_PREEMPTIONS,
            title="Maximum preemptions",
            description="How often the TPU may be taken away before the run gives up.",
            section=LIMITS,
        ),
        "stall_minutes": Param(
            60,
            type="integer",
            minimum=0,
            maximum=MAX_STALL_MINUTES,
            title="Silence in minutes",
            description="When neither the log nor progress.json nor any file of the output or the checkpoints has "
            "changed for so long, the run is stopped and tried again. 0 switches this off.",
            section=LIMITS,
        ),
        "allow_paid_reason": _text(
            "", LIMITS, "Reason for paid use", "Empty refuses every TPU that the grant does not cover.", empty=True
        ),
    }


def _text(default: str, section: str, title: str, description: str, **options: Any) -> Param:
    # Airflow's form calls an empty text an error unless null is allowed, and then sends null.
    optional = bool(options.get("empty"))
    schema: dict[str, Any] = {} if optional else {"minLength": 1}
    if options.get("lines"):
        schema["format"] = "multiline"
    if options.get("examples"):
        schema["examples"] = options["examples"]
    kind = ["null", "string"] if optional else "string"
    value = None if optional and not default else default
    return Param(value, type=kind, title=title, description_md=description, section=section, **schema)


def _hours(default: float, title: str, description: str, **least: float) -> Param:
    schema: dict[str, Any] = {"type": "number", "maximum": MAX_DEADLINE_HOURS, **least}
    return Param(default, title=title, description=description, section=LIMITS, **schema)


def _choice(values: list[Any] | dict[str, str], default: str, title: str, description: str) -> Param:
    # The form shows such a value with its meaning behind it; everything else knows the value alone.
    shown = {value: f"{value}: {meaning}" for value, meaning in values.items()} if isinstance(values, dict) else {}
    return Param(
        str(default),
        type="string",
        enum=[str(value) for value in values],
        title=title,
        description_md=description,
        section=WHERE,
        values_display=shown,
    )


def _first_choice(catalogue: Catalogue, grant: Grant | None) -> tuple[str, str, Tier] | None:
    """The first row of the grant that a type of one worker fits."""
    for row in grant.allowances if grant else ():
        name = next(filter(row.is_of, catalogue.single_host_types()), None)
        if name is not None and row.zone in catalogue.zones_of(name):
            return name, row.zone, row.tier
    return None
