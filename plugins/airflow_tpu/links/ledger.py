# SPDX-License-Identifier: Apache-2.0
"""Button to the page *TPU usage* of this Airflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_tpu import settings
from airflow_tpu.links.base import StoredLink

if TYPE_CHECKING:
    from airflow.sdk import Context

PAGE = "plugin/tpu-usage"
"""Where Airflow shows an external view: ``plugin/`` and the view's route, see ``ui/plugin.py``."""


class CloudTPUUsageLink(StoredLink):
    """The page with the grant, what is alive and what was free."""

    name = "TPU usage"
    key = "tpu_usage_link"
    form = "{airflow}/" + PAGE

    @classmethod
    def persist_page(cls, context: Context) -> str:
        """Store the URL; without ``[api] base_url`` it is one from the root of whichever host shows the button."""
        return cls.store(context, cls.form.format(airflow=settings.airflow_address().rstrip("/")))
