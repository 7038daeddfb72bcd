# SPDX-License-Identifier: Apache-2.0
"""The plugin: a page in Airflow's navigation, the application behind it, and an ear for what people say of a run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from functools import cached_property
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from airflow_tpu.ui import marked_runs, preload

PREFIX = "airflow-tpu"

Message = MutableMapping[str, Any]


class LazyApp:
    """Builds the application at its first request.

    Every Airflow process loads its plugins, and only the API server has what the application imports. An import that
    fails there breaks this page and not the API server.
    """

    @cached_property
    def app(self) -> Any:
        """The application."""
        from airflow_tpu.ui.app import create_app

        return create_app()

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        """Handle one request."""
        await self.app(scope, receive, send)


class CloudTPUPlugin(AirflowPlugin):
    """The page *TPU usage* below *Browse* in Airflow's navigation."""

    name = "airflow_tpu"
    listeners = [marked_runs, preload]  # noqa: RUF012 - Airflow's form
    fastapi_apps = [{"name": "TPU usage", "url_prefix": f"/{PREFIX}", "app": LazyApp()}]  # noqa: RUF012 - Airflow's form
    external_views = [  # noqa: RUF012 - Airflow's form
        {
            "name": "TPU usage",
            # Relative, so that it holds below any [api] base_url.
            "href": f"{PREFIX}/",
            "url_route": "tpu-usage",
            "destination": "nav",
            "category": "browse",
            "icon": f"{PREFIX}/static/icon.svg",
            "icon_dark_mode": f"{PREFIX}/static/icon-dark.svg",
        }
    ]
