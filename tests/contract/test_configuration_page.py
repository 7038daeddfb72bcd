# SPDX-License-Identifier: Apache-2.0
"""docs/configuration.md is what the provider tells Airflow, and what the code reads."""

from __future__ import annotations

import re
from pathlib import Path

from airflow_tpu.connection_type import EXAMPLES, SSH_FIELDS, connection_types
from airflow_tpu.get_provider_info import get_provider_info
from scripts import configuration_page

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "plugins" / "airflow_tpu"


def test_the_page_is_up_to_date() -> None:
    """The page in docs/ is the one that ``python scripts/configuration_page.py`` writes today."""
    assert (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8") == configuration_page.page()


def test_every_option_and_field_is_on_the_page_once() -> None:
    """Each option, each key of the Google connection and each field of the SSH connection is one row."""
    rows = [line.split("`")[1] for line in configuration_page.page().splitlines() if line.startswith("| `")]
    (google,) = connection_types()
    wanted = [*get_provider_info()["config"]["airflow_tpu"]["options"], *google["conn-fields"], *SSH_FIELDS]
    assert [row for row in rows if row != "grant"] == [name for name in wanted if name != "grant"]
    assert rows.count("grant") == 2  # its own row, and the heading of the table of its three forms


def test_every_field_has_an_example() -> None:
    """No key of the connection is without one, and no example is for a key that is gone."""
    (google,) = connection_types()
    assert EXAMPLES.keys() == google["conn-fields"].keys()


def test_the_ssh_connection_has_the_fields_that_are_read() -> None:
    """What the login takes from the connection is what the page lists."""
    source = (PACKAGE / "clients" / "ssh_login.py").read_text(encoding="utf-8")
    read = {f"extra.{key}" for key in re.findall(r'extra\.get\("(\w+)"\)', source)}
    read |= set(re.findall(r"connection\.(login|password|host|port|schema)\b", source))
    assert read == SSH_FIELDS.keys()
