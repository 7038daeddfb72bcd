"""The trigger form."""

from __future__ import annotations

from airflow.sdk import Param

from airflow_tpu.core.conf import RunConf
from airflow_tpu.hooks.grant import load_catalogue
from airflow_tpu.params import train_params


def dump(params: dict[str, Param]) -> dict[str, object]:
    """What pressing Trigger sends when nothing is changed."""
    return {name: param.resolve() for name, param in params.items()}


def test_untouched_form_is_a_valid_run() -> None:
    """Pressing Trigger at once works: every default passes the full check of the first task."""
    conf = RunConf.parse(dump(train_params()), load_catalogue())
    assert (conf.script, conf.arguments, conf.environment) == ("digits.py", (), {})


def test_form_and_check_know_the_same_fields() -> None:
    """A field of the form that the check does not know, or the other way round, would fail every run."""
    names = set(RunConf.parse(dump(train_params()), load_catalogue()).to_json())
    assert set(train_params()) == names


def test_every_field_has_section_title_and_help() -> None:
    """Nobody has to guess what a field means."""
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
        "requirements",
        "environment",
        "runtime_version",
        "allow_paid_reason",
        "data_uri",
        "model",
    }


def test_every_meaning_belongs_to_a_value() -> None:
    """What the form shows begins with the value that is sent, so that what is seen can be typed elsewhere."""
    shown = {name: param.schema["values_display"] for name, param in train_params().items() if "enum" in param.schema}
    assert {name for name, texts in shown.items() if texts} == {"provisioning", "on_stock_out"}
    for name, texts in shown.items():
        assert set(texts) in (set(), set(train_params()[name].schema["enum"]))
        assert [value for value, text in texts.items() if not text.startswith(f"{value}: ")] == []
