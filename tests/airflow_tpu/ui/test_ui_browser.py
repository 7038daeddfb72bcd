# SPDX-License-Identifier: Apache-2.0
"""The page in a real Chromium, served by Airflow's own API server, over the ledger of two hundred invented incarnations
and those of a soak."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, FrameLocator, Page, Request, Route

from airflow_tpu.core.ledger.events import EndReason, Transfer
from airflow_tpu.core.ledger.usage import fold
from airflow_tpu.links.ledger import PAGE as USAGE
from airflow_tpu.ui.parts import Reader
from airflow_tpu.ui.snapshot import Snapshot
from airflow_tpu.ui.views import page as view
from tests.airflow_tpu.ui.chromium import chromium
from tests.airflow_tpu.ui.invented import LIVING, V3, Project, closed_like, opened
from tests.airflow_tpu.ui.made import ALL, CATALOGUE, NOW, closed, snapshot
from tests.airflow_tpu.ui.made import opened as made_opened
from tests.airflow_tpu.ui.saved import chosen, moved, saved_events
from tests.airflow_tpu.ui.server import api_server

pytestmark = pytest.mark.slow

WIDTHS = (1280, 390)
THEMES = ("light", "dark")
PAGE = "/airflow-tpu/"
HOSTILE = "<img src=x onerror=alert(1)> & <b>bold</b>"
SCRIPTS = Path(__file__).with_name("browser")
CONTRAST, CUT, FOCUS = ((SCRIPTS / f"{name}.js").read_text() for name in ("contrast", "cut", "focus"))


@dataclass
class Visit:
    """A tab, and everything it complained about.

    :param page: Playwright's page.
    :param width: of the window, in pixels.
    :param theme: what the system prefers.
    :param complaints: errors of console and scripts, and requests that left this machine.
    """

    page: Page
    width: int
    theme: str
    complaints: list[str] = field(default_factory=list)

    def listen(self, own: str) -> None:
        """Note complaints, and keep every request on this machine."""
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.route(lambda url: not url.startswith(own), self._refuse)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.complaints.append(message.text)

    def _refuse(self, route: Route, request: Request) -> None:
        self.complaints.append(f"outside: {request.url}")
        route.abort()


@pytest.fixture(scope="module")
def url(project: Project, database: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of Airflow, with a project full of everything behind it."""
    now = dt.datetime.now(dt.UTC)
    project.furnish(now)
    far = Transfer("gs://far-away/images", "US-CENTRAL1", outward=False, size=120 * 1024**3)
    hostile = replace(opened(LIVING, 9, now - dt.timedelta(days=2), V3), paid_reason=HOSTILE, transfers=(far,))
    project.record(hostile)
    project.record(closed_like(hostile, hours=1.5))
    for event in moved(saved_events(chosen()), now - dt.timedelta(hours=1)):
        project.record(event)
    with api_server(tmp_path_factory.mktemp("airflow") / "api-server.log") as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium of this machine."""
    with chromium() as started:
        yield started


@pytest.fixture
def shown(browser: Browser, url: str, request: pytest.FixtureRequest) -> Iterator[Visit]:
    """The page with its figures, in the width and theme of the test."""
    look: tuple[int, Any] = getattr(request, "param", (1280, "light"))
    width, theme = look
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
    seen = Visit(page, width, theme)
    seen.listen(url)
    page.goto(url + PAGE)
    page.locator("#content").wait_for()
    yield seen
    page.close()


LOOKS = [(width, theme) for width in WIDTHS for theme in THEMES]
every_look = pytest.mark.parametrize("shown", LOOKS, indirect=True, ids=lambda look: f"{look[0]}-{look[1]}")
every_width = pytest.mark.parametrize("shown", LOOKS[::2], indirect=True, ids=lambda look: str(look[0]))


@every_look
def test_the_page_fits_and_nothing_complains(shown: Visit, out: Path) -> None:
    """In every look nothing is wider than the window, no script fails and nothing is loaded from outside."""
    shown.page.screenshot(path=out / f"usage-{shown.width}-{shown.theme}.png", full_page=True)
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= shown.width
    assert shown.page.locator("canvas").count() == 1
    assert shown.complaints == []


@every_width
def test_no_text_is_cut_or_covered(shown: Visit) -> None:
    """No cell or figure is wider than the place it has."""
    assert shown.page.evaluate(CUT) == []


@every_look
def test_text_can_be_read(shown: Visit) -> None:
    """Text and its background have at least the contrast that WCAG 2.2 asks for (AA, 4.5 to 1)."""
    assert shown.page.evaluate(CONTRAST) == []


@every_width
def test_a_screen_reader_finds_its_way(shown: Visit) -> None:
    """Headings, tables with column and row headers, gauges and chart have names, also where rows are cards."""
    page = shown.page
    assert page.get_by_role("heading", level=1).all_inner_texts() == ["TPU usage"]
    for name in ("Allowances of the grant", "TPUs", "Orphans", "List value not paid", "Not free", "Preemptions"):
        table = page.get_by_role("table", name=name, exact=True)
        assert table.get_by_role("columnheader").count() > 0
        assert table.get_by_role("rowheader").count() == table.get_by_role("row").count() - 1
    gauge = "6 of 5 devices in use, 0 idle, 1 held by dead TPUs, 1 over the allowance: billed"
    assert page.get_by_role("img", name=gauge).count() == 1
    assert page.get_by_role("img", name=re.compile("^Chip-hours per day from .* tpu_train [0-9.]+")).count() == 1
    assert page.get_by_role("status").inner_text().startswith("Project local-project, as of ")


def test_the_keyboard_reaches_everything(shown: Visit) -> None:
    """Every link and the table behind the chart get the focus by Tab, and the focus is seen."""
    page = shown.page
    page.get_by_text("SSH commands of the running TPUs").click()
    page.locator("h1").click()
    wanted = page.locator("main a[href], main summary, main button").count()
    reached = set()
    for _ in range(wanted):
        page.keyboard.press("Tab")
        focus = page.evaluate(FOCUS)
        assert focus["outline"] >= 2
        reached.add(focus["place"])
    assert len(reached) == wanted
    page.locator("#chart-details summary").focus()
    page.keyboard.press("Enter")
    assert page.get_by_role("table", name="Chip-hours per day").is_visible()


@every_look
def test_an_ssh_command_is_copied(shown: Visit, out: Path) -> None:
    """The command of a running TPU can be read whole in every look, and its button puts it into the clipboard."""
    page = shown.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_text("SSH commands of the running TPUs").click()
    page.get_by_role("button", name=f"Copy the SSH command of {LIVING.node_id(1)}").click()
    page.get_by_role("status").get_by_text("Copied").wait_for()
    command = page.evaluate("navigator.clipboard.readText()")
    assert command.startswith(f"gcloud compute tpus tpu-vm ssh {LIVING.node_id(1)} --zone=us-central1-f ")
    assert page.get_by_role("list", name="SSH commands").get_by_text(command, exact=True).is_visible()
    assert (page.evaluate(CUT), page.evaluate(CONTRAST)) == ([], [])
    assert page.evaluate("document.documentElement.scrollWidth") <= shown.width
    page.locator("#logins").screenshot(path=out / f"usage-ssh-{shown.width}-{shown.theme}.png")


def test_without_a_clipboard_the_command_is_copied_from_the_selection(shown: Visit) -> None:
    """Where scripts have no clipboard, as on plain HTTP, the command is selected and copied all the same."""
    page = shown.page
    page.context.grant_permissions(["clipboard-read"])
    read = page.evaluate_handle("() => { const board = navigator.clipboard; return () => board.readText(); }")
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page.get_by_text("SSH commands of the running TPUs").click()
    page.get_by_role("button", name=f"Copy the SSH command of {LIVING.node_id(1)}").click()
    page.get_by_role("status").get_by_text("Copied").wait_for()
    assert f" {LIVING.node_id(1)} " in page.evaluate("read => read()", read)


@pytest.fixture
def framed(browser: Browser, url: str) -> Iterator[tuple[Page, FrameLocator]]:
    """The page where people find it: Airflow's UI, opened from its navigation; and the frame in it."""
    context = browser.new_context(viewport={"width": 1280, "height": 2060}, device_scale_factor=0.75)
    context.route(lambda address: not address.startswith(url), lambda route: route.fulfill(body="outside"))
    page = context.new_page()
    page.goto(url)
    page.get_by_text("Browse", exact=True).click()
    page.get_by_role("menuitem", name="TPU usage").click()
    frame = page.frame_locator("iframe[title='TPU usage']")
    frame.locator("#content").wait_for()
    yield page, frame
    context.close()


def test_the_page_has_an_address_of_its_own(framed: tuple[Page, FrameLocator], url: str) -> None:
    """Opened by the address that a run's report leads to, and after a reload, the page shows its figures."""
    page, frame = framed
    page.goto(f"{url}/{USAGE}")
    frame.get_by_role("heading", name="TPUs that exist now").wait_for()
    page.reload()
    frame.get_by_role("heading", name="TPUs that exist now").wait_for()


def test_links_leave_airflows_frame(framed: tuple[Page, FrameLocator], url: str, out: Path) -> None:
    """A console link opens a new tab, and a run's link the run in Airflow around the frame."""
    page, frame = framed
    page.screenshot(path=out / "usage-in-airflow.png")
    tpus = frame.get_by_role("table", name="TPUs", exact=True)
    with page.context.expect_page() as tab:
        tpus.get_by_role("link", name=re.compile("^left-by-hand")).click()
    assert "//console.cloud.google.com/compute/tpus/details/europe-west4-a/left-by-hand?" in tab.value.url
    tpus.get_by_role("link", name=LIVING.dag_id, exact=True).click()
    page.wait_for_url(f"{url}/dags/{LIVING.dag_id}/runs/**")


def test_airflow_decides_on_light_or_dark(framed: tuple[Page, FrameLocator]) -> None:
    """What Airflow's UI chooses goes before what the system prefers, at once and without a reload."""
    page, frame = framed
    body = frame.locator("body")
    colours = []
    for theme in ("light", "dark", "light"):
        page.evaluate("theme => localStorage.setItem('theme', theme)", theme)
        frame.locator(f"html[data-theme={theme}]").wait_for()
        colours.append(body.evaluate("body => getComputedStyle(body).backgroundColor"))
    assert colours[0] == colours[2] != colours[1]


def test_a_narrow_window_keeps_its_chart(shown: Visit) -> None:
    """The chart follows the window when it is made narrow."""
    shown.page.set_viewport_size({"width": 390, "height": 800})
    shown.page.wait_for_function("document.querySelector('.uplot').clientWidth <= 390")
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert shown.complaints == []


def test_text_from_outside_stays_text(shown: Visit) -> None:
    """HTML in what a person typed is shown as it was typed."""
    assert shown.page.get_by_text(f"outside the grant: {HOSTILE}").count() == 1
    assert shown.page.locator("main img").count() == 0


@every_width
def test_what_is_unknown_looks_unknown(shown: Visit, out: Path) -> None:
    """With nothing readable the page says so and why, in every place."""
    page = shown.page
    nothing = Snapshot(NOW, problems={"grant": "no such file", "live TPUs": "403 from the Cloud TPU API"})
    page.route("**/airflow-tpu/data", lambda route: route.fulfill(json={"state": "ready", **view(nothing, ALL)}))
    page.reload()
    page.get_by_role("list", name="What could not be read").get_by_text("no such file").wait_for()
    page.screenshot(path=out / f"usage-unknown-{shown.width}.png", full_page=True)
    assert page.locator("main dd").all_inner_texts() == ["unknown"] * 7
    sections = page.locator("main section:not(:first-child)").all_inner_texts()
    assert [text for text in sections if "unknown" not in text] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= shown.width


@every_look
def test_the_ledger_of_a_soak_is_shown_whole(shown: Visit, out: Path) -> None:
    """Alone on the page, every figure of a soak's ledger can be read in every look, and nothing is cut."""
    page, usage = shown.page, fold(moved(saved_events(chosen()), NOW), CATALOGUE, NOW)
    data = view(snapshot(usage=usage), Reader({row.opened.dag_id for row in usage.rows}, everything=True))
    page.route("**/airflow-tpu/data", lambda route: route.fulfill(json={"state": "ready", **data}))
    page.reload()
    taken = sum(row.state == EndReason.PREEMPTED for row in usage.rows)
    page.locator("#tiles").get_by_text(f"of {len(usage.rows)} incarnation(s)").wait_for()
    assert page.locator("#tiles div", has_text="Preemptions").locator("dd").first.inner_text() == str(taken)
    page.screenshot(path=out / f"usage-soak-{shown.width}-{shown.theme}.png", full_page=True)
    assert (page.evaluate(CUT), page.evaluate(CONTRAST)) == ([], [])
    assert page.evaluate("document.documentElement.scrollWidth") <= shown.width


def test_a_short_run_is_no_zero(shown: Visit) -> None:
    """The name of the chart tells of the minutes of a first run, too."""
    event = made_opened()
    data = view(snapshot(events=[event, closed(event, hours=0.01)]), ALL)
    shown.page.route("**/airflow-tpu/data", lambda route: route.fulfill(json={"state": "ready", **data}))
    shown.page.reload()
    shown.page.get_by_role("img", name=re.compile("Totals: tpu_train 0.040.")).wait_for()


@pytest.mark.parametrize(
    ("status", "text"),
    [(401, "Your session has ended"), (403, "You may not see this page"), (500, "Airflow answered 500")],
)
def test_a_refusal_is_explained(shown: Visit, status: int, text: str) -> None:
    """A reader whose session ends while the page is open reads what to do."""
    shown.page.route("**/airflow-tpu/data", lambda route: route.fulfill(status=status, json={"detail": "no"}))
    shown.page.reload()
    shown.page.get_by_role("status").get_by_text(text).wait_for()
