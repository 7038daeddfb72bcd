# SPDX-License-Identifier: Apache-2.0
"""The web application behind the page: read-only, every route behind Airflow's own permissions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagAccessEntity
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag, requires_access_view
from airflow.configuration import conf
from anyio import CapacityLimiter, to_thread
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import FileResponse, JSONResponse

from airflow_tpu.ui.data import Loader, SnapshotCache
from airflow_tpu.ui.parts import Reader
from airflow_tpu.ui.snapshot import Snapshot
from airflow_tpu.ui.views import page

STATIC = Path(__file__).resolve().parent / "static"
_SERVED = frozenset({".js", ".css", ".svg"})
FILES = {path.relative_to(STATIC).as_posix(): path for path in STATIC.rglob("*") if path.suffix in _SERVED}
"""What may be served: a path in a request is only ever looked up here."""
WAIT_SECONDS = 20.0
"""Seconds one request waits for the first reading; then the page asks again."""
RENDERERS = 4
"""Threads of our own that make answers; those of the server, 40 unless it is set up otherwise, are left to Airflow."""
HEADERS = {
    # No inline script or style, nothing from elsewhere, and only Airflow itself may frame the page.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'self'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
}
GUARDS = [
    Depends(requires_access_view(AccessView.WEBSITE)),
    Depends(requires_access_dag("GET", DagAccessEntity.RUN)),
]


def create_app(cache: SnapshotCache | None = None, wait_seconds: float = WAIT_SECONDS) -> FastAPI:
    """Build the application.

    :param cache: where the figures come from.
    :param wait_seconds: seconds one request waits for them.
    """
    snapshots = cache or SnapshotCache(Loader())
    # A sub-application is open to every visitor unless it guards itself, and FastAPI's own pages ignore the guards.
    app = FastAPI(title="TPU usage", dependencies=GUARDS, openapi_url=None, docs_url=None, redoc_url=None)
    app.middleware("http")(_with_headers)

    @app.get("/")
    def index() -> FileResponse:
        return FileResponse(STATIC / "index.html", media_type="text/html")

    @app.get("/static/{name:path}")
    def static(name: str) -> FileResponse:
        if name not in FILES:
            raise HTTPException(404, "no such file")
        return FileResponse(FILES[name])

    renderers = CapacityLimiter(RENDERERS)

    @app.get("/data")
    async def data(user: GetUserDep) -> JSONResponse:
        snapshot = await snapshots.arrived(wait_seconds)
        if snapshot is None:
            return JSONResponse({"state": "loading"}, status_code=202)
        return await to_thread.run_sync(_answer, snapshot, user, limiter=renderers)

    return app


def _answer(snapshot: Snapshot, user: Any) -> JSONResponse:
    visible = _visible(snapshot.dag_ids, user)
    reader = Reader(visible, everything=visible >= snapshot.dag_ids)
    return JSONResponse({"state": "ready", **page(snapshot, reader)})


def _visible(dag_ids: set[str], user: Any) -> set[str]:
    """Which of these DAGs Airflow lets the user see."""
    manager = get_auth_manager()
    if conf.getboolean("core", "multi_team", fallback=False):
        # Only this call knows the teams; it leaves out DAGs that Airflow no longer has.
        return dag_ids & manager.get_authorized_dag_ids(user=user)
    return manager.filter_authorized_dag_ids(dag_ids=dag_ids, user=user)


async def _with_headers(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    """Refusals get the headers too."""
    response = await call_next(request)
    response.headers.update(HEADERS)
    return response
