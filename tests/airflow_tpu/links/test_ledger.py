# SPDX-License-Identifier: Apache-2.0
"""The button of a run's report to the usage page."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_tpu.links.ledger import PAGE, CloudTPUUsageLink
from airflow_tpu.operators.ledger import CloudTPUUsageReportOperator
from airflow_tpu.ui.plugin import CloudTPUPlugin


class Task:
    """A task instance that keeps what is stored with it."""

    def __init__(self) -> None:
        self.stored: dict[str, str] = {}

    def xcom_push(self, key: str, value: str) -> None:
        """Keep a value."""
        self.stored[key] = value


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("https://airflow.example.org", "https://airflow.example.org/plugin/tpu-usage"),
        ("https://example.org/airflow/", "https://example.org/airflow/plugin/tpu-usage"),
        ("", "/plugin/tpu-usage"),
    ],
)
def test_the_button_leads_to_the_page_of_this_airflow(base_url: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address is below [api] base_url, whatever its path; without one it is from the root of the host."""
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", base_url)
    task = Task()
    context: Any = {"ti": task}
    assert CloudTPUUsageLink.persist_page(context) == url
    assert task.stored == {CloudTPUUsageLink().xcom_key: url}


def test_the_button_leads_to_where_the_plugin_is() -> None:
    """Its path is the one under which Airflow shows the plugin's view, and the report is the task that has it."""
    (view,) = CloudTPUPlugin.external_views
    assert f"plugin/{view['url_route']}" == PAGE
    assert [link.name for link in CloudTPUUsageReportOperator.operator_extra_links] == [view["name"]]
