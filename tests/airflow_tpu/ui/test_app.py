# SPDX-License-Identifier: Apache-2.0
"""The web application inside Airflow's own, with Airflow's own auth manager."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx
import pytest
from airflow.api_fastapi.app import create_app as create_airflow
from airflow.api_fastapi.app import init_auth_manager, purge_cached_app
from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from airflow_tpu.ui.app import STATIC, create_app
from airflow_tpu.ui.data import SnapshotCache
from airflow_tpu.ui.snapshot import Snapshot
from localcloud.testing import eventually_async
from tests.airflow_tpu.ui.invented import Project, history
from tests.airflow_tpu.ui.made import NOW
from tests.airflow_tpu.ui.rights import bearer

PREFIX = "/airflow-tpu"
PATHS = ["/", "/data", "/static/page.js", "/static/no-such-file.js"]


@pytest.fixture(scope="module")
def airflow(project: Project, database: None) -> Iterator[TestClient]:
    """Airflow's API server with this checkout's plugins folder, over a project with a short history."""
    for event in history(dt.datetime.now(dt.UTC), 10):
        project.record(event)
    with TestClient(create_airflow(apps="core"), base_url="http://localhost") as client:
        yield client
    purge_cached_app()


@pytest.mark.parametrize("path", PATHS)
def test_nobody_gets_in_without_logging_in(airflow: TestClient, path: str) -> None:
    """An anonymous request is refused, for files that exist and for those that do not."""
    assert airflow.get(PREFIX + path).status_code == 401


@pytest.mark.parametrize("path", PATHS)
def test_a_wrong_token_is_refused(airflow: TestClient, path: str) -> None:
    """A token that Airflow did not sign is refused."""
    assert airflow.get(PREFIX + path, headers={"Authorization": "Bearer made.up.token"}).status_code == 403


@pytest.mark.parametrize("path", PATHS)
def test_a_user_without_rights_is_refused(airflow: TestClient, path: str) -> None:
    """A logged-in user without the right to see Airflow's DAG runs gets 403."""
    assert airflow.get(PREFIX + path, headers=bearer(None)).status_code == 403


@pytest.mark.parametrize("role", ["VIEWER", "USER", "OP", "ADMIN"])
def test_a_user_with_rights_sees_the_figures(airflow: TestClient, role: str) -> None:
    """A user who may see Airflow's DAG runs gets the page and the figures of the real ledger."""
    assert airflow.get(f"{PREFIX}/", headers=bearer(role)).text.startswith("<!doctype html>")
    data = airflow.get(f"{PREFIX}/data", headers=bearer(role)).json()
    assert (data["state"], data["project"], data["problems"]) == ("ready", "local-project", [])
    assert len(data["gauges"]) == 8
    assert {tile["label"]: tile["note"] for tile in data["tiles"]}["Preemptions"] == "of 10 incarnation(s)"


def test_the_session_cookie_of_the_ui_is_enough(airflow: TestClient) -> None:
    """The page needs nothing but the cookie that Airflow's UI has anyway."""
    token = bearer("VIEWER")["Authorization"].removeprefix("Bearer ")
    assert airflow.get(f"{PREFIX}/data", headers={"Cookie": f"_token={token}"}).status_code == 200


def test_the_page_is_in_the_navigation(airflow: TestClient) -> None:
    """Airflow's own list of plugins has the page once, without an import error, and its address answers."""
    plugins = airflow.get("/api/v2/plugins", headers=bearer("ADMIN")).json()["plugins"]
    (view,) = (view for plugin in plugins for view in plugin["external_views"] if view["name"] == "TPU usage")
    assert view["destination"] == "nav"
    for address in (view["href"], view["icon"], view["icon_dark_mode"]):
        assert airflow.get(f"/{address}", headers=bearer("VIEWER")).status_code == 200
    errors = airflow.get("/api/v2/plugins/importErrors", headers=bearer("ADMIN")).json()
    assert errors == {"import_errors": [], "total_entries": 0}


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("path", ["/", "/data"])
def test_the_page_changes_nothing(airflow: TestClient, method: str, path: str) -> None:
    """No method but reading is allowed, even to an admin."""
    assert airflow.request(method, PREFIX + path, headers=bearer("ADMIN")).status_code == 405


@pytest.mark.parametrize("name", ["../app.py", "..%2Fapp.py", "%2Fetc%2Fpasswd", "index.html", "vendor/uplot/LICENSE"])
def test_only_its_own_files_are_served(airflow: TestClient, name: str) -> None:
    """A path in a request is looked up in a list and never on the disk."""
    assert airflow.get(f"{PREFIX}/static/{name}", headers=bearer("ADMIN")).status_code == 404


@pytest.mark.parametrize("path", [*PATHS, "/static/page.css"])
@pytest.mark.parametrize("role", [None, "VIEWER"])
def test_every_answer_forbids_foreign_and_inline_code(airflow: TestClient, path: str, role: str | None) -> None:
    """Refusals and answers alike carry a policy without inline or foreign scripts, and only Airflow may frame them."""
    headers = airflow.get(PREFIX + path, headers=bearer(role)).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert (policy["default-src"], policy["script-src"], policy["style-src"]) == ("'none'", "'self'", "'self'")
    assert policy["frame-ancestors"] == "'self'"
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


def routes() -> list[Any]:
    """Every route of the application by itself."""
    return list(create_app(SnapshotCache(lambda: Snapshot(NOW))).routes)


def test_every_route_is_guarded_and_reads() -> None:
    """Each route there is, FastAPI's own included, carries both guards and no method but GET."""
    found = routes()
    assert {route.path for route in found} == {"/", "/static/{name:path}", "/data"}
    for route in found:
        assert isinstance(route, APIRoute)
        assert route.methods == {"GET"}
        assert len(route.dependencies) == 2


def test_the_html_holds_no_inline_code() -> None:
    """The page is one file without inline scripts, styles or handlers, and names only files that are served."""
    html = (STATIC / "index.html").read_text(encoding="utf-8")
    assert "<style" not in html
    assert " style=" not in html
    assert " onload=" not in html
    assert html.count("<script") == html.count("<script src=") == 3


@pytest.fixture
def alone() -> Iterator[FastAPI]:
    """An application around ours that knows Airflow's auth manager and nothing else."""
    app = FastAPI()
    init_auth_manager()
    yield app
    purge_cached_app()


def test_a_first_reading_that_takes_long_says_so(alone: FastAPI) -> None:
    """While the figures are being read the answer asks the page to try again, instead of letting it wait."""

    never = threading.Event()

    def load() -> Snapshot:
        never.wait()
        return Snapshot(NOW)

    alone.mount(PREFIX, create_app(SnapshotCache(load), wait_seconds=0.0))
    answer = TestClient(alone).get(f"{PREFIX}/data", headers=bearer("VIEWER"))
    never.set()
    assert (answer.status_code, answer.json()) == (202, {"state": "loading"})


OPEN_PAGES = 60
"""More than a server has threads (40, Starlette's default)."""


async def test_open_pages_do_not_hold_up_other_routes(alone: FastAPI, database: None) -> None:
    """While a slow ledger is read for many open pages, a route of Airflow answers; then each page gets its figures."""
    ready, asked = threading.Event(), []

    def load() -> Snapshot:
        assert ready.wait(60)
        return Snapshot(NOW)

    @alone.get("/core")
    def core() -> int:
        return 1

    @alone.middleware("http")
    async def count(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        asked.append(request.url.path)
        return await call_next(request)

    alone.mount(PREFIX, create_app(SnapshotCache(load), wait_seconds=60.0))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(alone), base_url="http://test") as client:
        wanted = [client.get(f"{PREFIX}/data", headers=bearer("VIEWER")) for _ in range(OPEN_PAGES)]
        pages = [asyncio.ensure_future(page) for page in wanted]
        await eventually_async(lambda: length(asked), lambda found: found >= OPEN_PAGES)
        # One after the other: each page has passed its guards, which need threads as well, long before the last one.
        others = [await asyncio.wait_for(client.get("/core"), 30) for _ in range(OPEN_PAGES)]
        assert not any(page.done() for page in pages)
        ready.set()
        answers = await asyncio.gather(*pages)
    assert {other.json() for other in others} == {1}
    assert {answer.json()["state"] for answer in answers} == {"ready"}


async def length(found: list[str]) -> int:
    """How many there are by now."""
    return len(found)
