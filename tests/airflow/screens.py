# SPDX-License-Identifier: Apache-2.0
"""What a person does in Airflow's UI, by what is read on the screen; each step leaves a picture."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import FrameLocator, Locator, Page

from tests.airflow.runs import TIMEOUT
from tests.airflow.settings import PASSWORD
from tests.airflow_tpu.ui.chromium import chromium, pictures

TIMEOUT_MS = TIMEOUT * 1000
WIDTH, TALL = 1280, 1400
# What turns and pulses while tasks run takes most of a core where there is no graphics card.
STILL = """document.addEventListener("DOMContentLoaded", () => {
    const style = document.createElement("style");
    style.textContent = "*, *::before, *::after { animation: none !important; transition: none !important; }";
    document.head.append(style);
});"""


@dataclass(frozen=True)
class Screen:
    """A tab of a logged-in person.

    :param page: Playwright's page.
    :param url: of Airflow.
    :param folder: where its pictures go.
    """

    page: Page
    url: str
    folder: Path

    def open(self, path: str) -> Page:
        """Go to a page of Airflow."""
        self.page.goto(self.url + path)
        return self.page

    def keep(self, name: str, height: int = 900) -> None:
        """Keep a picture of what is seen now, in a window of some height in pixels."""
        self.page.set_viewport_size({"width": WIDTH, "height": height})
        self.page.screenshot(path=self.folder / f"airflow-{name}.png", animations="disabled")

    def usage(self) -> FrameLocator:
        """Go to the usage page as people do, from Airflow's navigation; returns its frame."""
        self.page.get_by_role("button", name="Browse", exact=True).click()
        self.page.get_by_role("menuitem", name="TPU usage").click()
        return self._usage_frame()

    def usage_of_report(self) -> FrameLocator:
        """Go there by the button of a report that is open; Airflow stays in its tab for a page of its own."""
        self.page.get_by_role("link", name="TPU usage", exact=True).click()
        return self._usage_frame()

    def _usage_frame(self) -> FrameLocator:
        frame = self.page.frame_locator("iframe[title='TPU usage']")
        frame.locator("#content").wait_for()
        return frame

    @contextmanager
    def whole_grid(self) -> Iterator[None]:
        """Give the grid all the room, for beside the details it shows two runs only."""
        self.page.get_by_role("button", name="Collapse Details Panel").click()
        yield
        self.page.get_by_role("button", name="Show Details Panel").click()

    def form(self, dag: str) -> Form:
        """Press *Trigger* on a DAG's page."""
        self.open(f"/dags/{dag}").get_by_role("button", name="Trigger Dag").click()
        return Form(self, self.page.get_by_role("dialog"))

    def destination(self, link: str) -> str:
        """Address of the tab that a link opens; nothing is loaded from outside this machine."""
        with self.page.context.expect_page() as tab:
            self.page.get_by_role("link", name=link, exact=True).click()
        address = tab.value.url
        tab.value.close()
        return address


@dataclass(frozen=True)
class Form:
    """The trigger form.

    :param screen: where it is.
    :param dialog: all of it.
    """

    screen: Screen
    dialog: Locator

    def unfold(self, section: str) -> None:
        """Unfold a section, which folds the one that was unfolded."""
        heading = self.dialog.get_by_role("button", name=section, exact=True)
        heading.click()
        self.dialog.locator("[aria-expanded=true]", has_text=re.compile(f"^{re.escape(section)}$")).wait_for()

    def text(self, label: str) -> Locator:
        """The text field beside a label.

        Airflow 3.3 gives such a field an id that its label does not know, so only here the name is not enough.
        """
        named = self.screen.page.locator("label", has_text=re.compile(rf"^{re.escape(label)}\s*\*?\s*$"))
        return self.dialog.get_by_role("group").filter(has=named).locator("input, textarea")

    def choose(self, label: str, option: str) -> None:
        """Pick an option of a field, of which the beginning is enough."""
        self.dialog.get_by_role("combobox", name=label, exact=True).click()
        self.screen.page.get_by_role("option", name=re.compile(f"^{re.escape(option)}")).click()

    def press(self) -> None:
        """Press *Trigger*, and wait for the page of the run."""
        self.dialog.get_by_role("button", name="Trigger", exact=True).click()
        self.screen.page.wait_for_url("**/runs/**")


@contextmanager
def screen(url: str) -> Iterator[Screen]:
    """Log in with a browser of one's own, which has to be used in this thread only.

    :param url: of Airflow.
    """
    with chromium() as browser:
        context = browser.new_context(viewport={"width": WIDTH, "height": 900})
        context.set_default_timeout(TIMEOUT_MS)
        # A pattern, no function: with that every request to Airflow would wait until this thread has time for it.
        context.route(re.compile(f"^(?!{re.escape(url)})"), lambda route: route.fulfill(body="outside"))
        context.add_init_script(STILL)
        page = context.new_page()
        page.goto(url)
        page.get_by_label("Username").fill("admin")
        page.get_by_role("textbox", name="Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{url}/")
        yield Screen(page, url, pictures())
        context.close()


def run_page(dag: str, run: str, task: str = "") -> str:
    """Path in the UI of a DAG run, or of one of its tasks."""
    return f"/dags/{dag}/runs/{quote(run, safe='')}" + (f"/tasks/{task}" if task else "")
