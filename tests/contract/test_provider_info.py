# SPDX-License-Identifier: Apache-2.0
"""What the package tells Airflow about itself when it is installed."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import airflow
import jsonschema
import pytest

from airflow_tpu import settings
from airflow_tpu.get_provider_info import get_provider_info

ROOT = Path(__file__).parents[2]
INFO = get_provider_info()


def named_modules() -> list[str]:
    """Every module that the description names."""
    roles = [*INFO["operators"], *INFO["hooks"], *INFO["triggers"]]
    return [module for role in roles for module in role["python-modules"]]


def test_airflow_accepts_the_description() -> None:
    """The description is valid by the schema that Airflow checks providers with."""
    schema: dict[str, Any] = json.loads(Path(airflow.__file__).with_name("provider_info.schema.json").read_text())
    jsonschema.validate(INFO, schema)


@pytest.mark.parametrize("name", named_modules())
def test_every_named_module_can_be_imported(name: str) -> None:
    """A module that the description names is there."""
    assert importlib.import_module(name).__name__ == name


def test_every_operator_trigger_and_link_is_named() -> None:
    """No module with a public class of ours is missing from what Airflow shows of the package."""
    package = ROOT / "plugins" / "airflow_tpu"
    public = {
        f"airflow_tpu.{role}.{path.stem}.{name}"
        for role in ("operators", "triggers", "links")
        for path in (package / role).glob("*.py")
        for name in re.findall(r"^class (CloudTPU\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        if path.stem not in ("base", "provision")
    }
    named = (*(f"{module}." for module in named_modules()), *INFO["extra-links"])
    assert [name for name in sorted(public) if not name.startswith(named)] == []


@pytest.mark.parametrize("path", INFO["extra-links"])
def test_every_named_link_is_there(path: str) -> None:
    """A link class that the description names is there and has a label for its button."""
    module, _, name = path.rpartition(".")
    assert getattr(importlib.import_module(module), name)().name


def test_every_option_that_is_read_is_described() -> None:
    """The options of section airflow_tpu that the code reads are those that ``airflow config list`` explains."""
    source = (ROOT / "plugins" / "airflow_tpu" / "settings.py").read_text(encoding="utf-8")
    read = set(re.findall(r'_(?:option|seconds)\("(\w+)"|SECTION, "(\w+)"', source))
    assert {first or second for first, second in read} == set(INFO["config"]["airflow_tpu"]["options"])


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("grant", settings.grant_name),
        ("inline_seconds", settings.inline_seconds),
        ("event_hold_seconds", settings.event_hold_seconds),
        ("retry_seconds", settings.retry_seconds),
    ],
)
def test_described_defaults_are_the_real_ones(
    name: str, read: Callable[[], str | float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ``airflow config list`` shows as the default is what an option that is left empty stands for."""
    monkeypatch.setenv(f"AIRFLOW__AIRFLOW_TPU__{name.upper()}", "")
    shown = INFO["config"]["airflow_tpu"]["options"][name]["default"]
    assert type(read())(shown) == read()


def test_connection_form_has_every_key_that_is_read_of_the_extra() -> None:
    """The form offers what the hook reads; whatever is secret is a password field, so that it is masked."""
    (kind,) = INFO["connection-types"]
    fields = kind["conn-fields"]
    source = (ROOT / "plugins" / "airflow_tpu" / "clients" / "endpoints.py").read_text(encoding="utf-8")
    assert set(re.findall(r'field\("(\w+)"\)', source)) <= set(fields)
    assert {name for name, field in fields.items() if field["schema"].get("format") == "password"} == {"keyfile_dict"}
    module, _, name = kind["hook-class-name"].rpartition(".")
    assert getattr(importlib.import_module(module), name).conn_type == kind["connection-type"]
