# SPDX-License-Identifier: Apache-2.0
"""The trigger form."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from airflow.sdk import Param

from airflow_tpu import settings
from airflow_tpu.core.request.run_conf import RunConf
from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.errors import ConfigError
from airflow_tpu.lifecycle.connections import Connections
from airflow_tpu.lifecycle.run_context import RunContext
from airflow_tpu.params import train_params
from airflow_tpu.stores.grants import load_catalogue, load_grant
from tests.airflow_tpu.identities import AIRFLOW


def dump(params: dict[str, Param]) -> dict[str, object]:
    """What pressing Trigger sends when nothing is changed."""
    return {name: param.resolve() for name, param in params.items()}


def test_untouched_form_is_a_valid_run() -> None:
    """Pressing Trigger at once works: every default passes the full check of the first task."""
    conf = RunConf.parse(dump(train_params()), load_catalogue())
    assert (conf.script, conf.arguments, conf.environment) == ("digits.py", (), {})


def test_default_of_the_dag_is_shown() -> None:
    """A DAG gives its own defaults by the names of the fields, and they win over those of the grant."""
    shown = dump(train_params(script="mine.py", deadline_hours=6, zone="us-central1-a"))
    assert (shown["script"], shown["deadline_hours"], shown["zone"]) == ("mine.py", 6, "us-central1-a")


def test_default_for_no_field_is_refused() -> None:
    """A mistyped name fails the import of the DAG, with the names there are."""
    with pytest.raises(ConfigError, match=r"dedline_hours = .*: no such field.*nearest: deadline_hours"):
        train_params(dedline_hours=6)  # type: ignore[call-arg]


def test_every_field_has_section_title_and_help() -> None:
    """Every field has a title and a help text."""
    for name, param in train_params().items():
        schema = param.schema
        assert schema.get("section"), name
        assert schema.get("title"), name
        assert schema.get("description_md") or param.description, name


def test_optional_text_allows_null_and_no_other_field_does() -> None:
    """Airflow's form disables its button over an empty text unless null is allowed; it then sends null."""
    nullable = {name for name, param in train_params().items() if "null" in param.schema["type"]}
    assert nullable == {
        "arguments",
        "network",
        "subnetwork",
        "service_account",
        "source",
        "command",
        "requirements",
        "framework",
        "environment",
        "runtime_version",
        "allow_paid_reason",
        "data_uri",
        "model",
        "outputs",
        "revision",
        "secrets",
        "source_conn_id",
    }


def test_every_meaning_belongs_to_a_value() -> None:
    """What the form shows begins with the value that is sent, so that what is seen can be typed elsewhere."""
    shown = {name: param.schema["values_display"] for name, param in train_params().items() if "enum" in param.schema}
    assert {name for name, texts in shown.items() if texts} == {"provisioning", "on_stock_out", "on_changed_code"}
    for name, texts in shown.items():
        assert set(texts) in (set(), set(train_params()[name].schema["enum"]))
        assert [value for value, text in texts.items() if not text.startswith(f"{value}: ")] == []


def test_every_field_is_flat() -> None:
    """An object or a list as a default would block the button, and cannot be typed into a field."""
    kinds = [param.schema["type"] for param in train_params().values()]
    named = {name for kind in kinds for name in (kind if isinstance(kind, list) else [kind])}
    assert named == {"string", "integer", "number", "boolean", "null"}
    assert {type(value) for value in dump(train_params()).values()} <= {str, int, float, bool, type(None)}


def test_proposals_are_good() -> None:
    """What the form proposes for a field that takes any text passes the full check, and its file is there."""
    catalogue, form = load_catalogue(), dump(train_params())
    proposed = {name: param.schema["examples"] for name, param in train_params().items() if "examples" in param.schema}
    assert set(proposed) == {"script", "requirements", "framework", "runtime_version"}
    for name in ("script", "requirements"):
        for example in proposed[name]:
            assert getattr(RunConf.parse({**form, name: example}, catalogue), name) == example
            assert (settings.include_dir() / "train" / example).is_file()
    for example in proposed["framework"]:
        assert RunConf.parse({**form, "framework": example}, catalogue).framework is not None
    singles = [catalogue.types[name] for name in catalogue.single_host_types()]
    assert set(proposed["runtime_version"]) == {kind.default_runtime for kind in singles}


@pytest.mark.parametrize(
    ("grant", "expected"),
    [
        ("local.yaml", ("v2-8", "us-central1-f", "on-demand", "gs://trc-local/airflow-tpu/runs")),
        ("example.yaml", ("v4-8", "us-central2-b", "spot", "gs://my-tpu-bucket/airflow-tpu/runs")),
    ],
)
def test_defaults_come_from_the_grant(grant: str, expected: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The first row of the grant is the default, and its bucket; the help lists every row."""
    monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__GRANT", grant)
    params = train_params()
    asked = ("accelerator_type", "zone", "tier", "artifacts_uri")
    assert tuple(params[name].resolve() for name in asked) == expected
    told = params["accelerator_type"].schema["description_md"]
    assert [str(row) for row in load_grant().allowances if str(row) not in told] == []


def test_defaults_from_the_grant_fit_those_of_the_dag(monkeypatch: pytest.MonkeyPatch) -> None:
    """A DAG that names its type shows zone and tier of the first row that has it."""
    monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__GRANT", "local.yaml")
    shown = dump(train_params(accelerator_type="v5litepod-8"))
    assert (shown["zone"], shown["tier"]) == ("europe-west4-b", "spot")


def test_the_form_offers_the_zones_of_the_grant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A zone that the price list lacks can be chosen, and is what the form shows if it is the grant's first."""
    row = "{count: 8, unit: chips, tier: spot, generation: v5e, zone: us-south9-z}"
    head = "project_id: project-a\nproject_number: 100000000001\nstart: 2026-11-01\ndays: 90\nbucket: bucket-a\n"
    mine = shutil.copytree(settings.include_dir(), tmp_path / "include")
    (mine / "grants" / "odd.yaml").write_text(f"{head}allowances: [{row}]\n", encoding="utf-8")
    monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__INCLUDE_DIR", str(mine))
    monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__GRANT", "odd.yaml")
    params = train_params()
    assert "us-south9-z" in params["zone"].schema["enum"]
    assert (params["zone"].resolve(), params["accelerator_type"].resolve()) == ("us-south9-z", "v5litepod-1")
    form = {**dump(params), "script": "hello.py"}
    assert RunContext(RunKey(AIRFLOW, "tpu_train", "r"), form, Connections()).conf.zone == "us-south9-z"
