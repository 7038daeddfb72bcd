# SPDX-License-Identifier: Apache-2.0
"""Two stories in Airflow's UI: a person trains, and a person looks at what the package brings."""

from __future__ import annotations

import re
from typing import Any

from playwright.sync_api import Locator, expect

from airflow_tpu.core.request.form_fields import LIMITS, RESULTS, WHAT, WHERE
from airflow_tpu.params import train_params
from tests.airflow.runs import SCRIPT, TrainingRun
from tests.airflow.screens import TALL, TIMEOUT_MS, Form, Screen, run_page, screen

SECTIONS = (WHAT, WHERE, RESULTS, LIMITS)
SEED = 7
GROUPED = ("train", "copy")
ARTIFACTS = "Artifacts in Cloud Storage"
CONSOLE = "https://console.cloud.google.com"
# A canvas knows the colour of every notation that a stylesheet may use.
ARE_GREEN = """paths => {
    const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const isGreen = part => {
        pen.clearRect(0, 0, 1, 1);
        pen.fillStyle = getComputedStyle(part).backgroundColor;
        pen.fillRect(0, 0, 1, 1);
        const [red, green, blue] = pen.getImageData(0, 0, 1, 1).data;
        return green > 2 * red && green > 2 * blue;
    };
    return paths.every(path => [...document.querySelectorAll(`a[href$="${path}"] *`)].some(isGreen));
}"""


def trains(run: TrainingRun) -> None:
    """Fill in the form, press Trigger, follow the log, look at the usage page, see the grid turn green, open the links.

    :raises AssertionError: something is not where it should be.
    """
    with screen(run.stack.url) as seen:
        form = seen.form(run.dag)
        fill_in(form, run)
        seen.keep("form", TALL)
        form.press()
        run.until_training("deferred")
        seen.open(run_page(run.dag, run.name, "train")).get_by_text(re.compile("^step [0-9]+ done$")).first.wait_for()
        seen.keep("log")
        seen.open(details(run, "train")).get_by_role("link", name=ARTIFACTS, exact=True).wait_for()
        is_counted(seen, run)
        seen.open(run_page(run.dag, run.name))
        run.let_end()
        turns_green(seen, run)
        has_links(seen, run)
    assert run.client.call(run.path)["conf"]["seed"] == SEED


def fill_in(form: Form, run: TrainingRun) -> None:
    """Say what to run and on which TPU; the id of the run is that of the story. One section is open at a time."""
    form.unfold("Advanced Options")
    form.text("Run ID").fill(run.name)
    form.unfold(WHERE)
    form.choose("Provisioning", "node")
    form.unfold(WHAT)
    form.text("Script").fill(SCRIPT)
    form.text("Environment").fill(f"STORY={run.name}")
    form.dialog.get_by_role("spinbutton", name="Seed", exact=True).fill(str(SEED))


def is_counted(seen: Screen, run: TrainingRun) -> None:
    """The usage page has the TPU, by whose name a screen reader finds its row, and the run that it is for."""
    tpus = seen.usage().get_by_role("table", name="TPUs", exact=True)
    row = tpus.get_by_role("row", name=re.compile(f"^{run.key.node_id(1)}"))
    row.get_by_role("link", name=run.dag, exact=True).wait_for()
    seen.keep("usage")


def turns_green(seen: Screen, run: TrainingRun) -> None:
    """Without a reload the run and all its tasks are a success, in words and in the colour of the grid."""
    tasks = run.tasks()
    # One beside each task and one beside the run, which is the last to get it.
    expect(seen.page.get_by_text("Success", exact=True)).to_have_count(len(tasks) + 1, timeout=TIMEOUT_MS)
    shown = [*(task for task in tasks if task not in GROUPED), "group/tpu"]
    paths = [f"{run_page(run.dag, run.name)}/", *(run_page(run.dag, run.name, task) for task in shown)]
    with seen.whole_grid():
        seen.page.wait_for_function(ARE_GREEN, arg=paths)
        seen.keep("grid")


def details(run: TrainingRun, task: str) -> str:
    """Path of the page that has a task's links."""
    return f"{run_page(run.dag, run.name, task)}/details"


def has_links(seen: Screen, run: TrainingRun) -> None:
    """The train task leads to the TPU's page and to its artifacts, the report to the usage page."""
    seen.open(details(run, "train")).get_by_text("Extra Links").wait_for()
    seen.keep("links")
    tpu, artifacts = map(seen.destination, ("TPU in Google Cloud", ARTIFACTS))
    assert f"{CONSOLE}/compute/tpus/details/us-central1-f/{run.key.node_id(1)}?" in tpu
    assert f"{CONSOLE}/storage/browser/trc-local/airflow-tpu/runs/{run.key.name}/train/attempt-1?" in artifacts
    seen.open(details(run, "report")).get_by_text("Extra Links").wait_for()
    seen.usage_of_report().get_by_role("heading", name="Not free", exact=True).wait_for()


def looks_around(run: TrainingRun) -> None:
    """Look at the pages that list what is installed, and at every field of the form.

    :raises AssertionError: something is not where it should be, or has no name.
    """
    with screen(run.stack.url) as seen:
        page = seen.open("/providers")
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name="airflow-provider-tpu", exact=True))
        row.get_by_role("cell", name="Train on the Cloud TPUs of a TPU Research Cloud grant").wait_for()
        seen.keep("providers")
        page = seen.open("/plugins")
        page.get_by_role("row", name=re.compile("^airflow_tpu airflow-provider-tpu==")).wait_for()
        seen.keep("plugins")
        has_connection_type(seen)
        is_explained(seen, run.dag)
        has_names(seen.form(run.dag))


def has_connection_type(seen: Screen) -> None:
    """A connection of our type is made with fields that have names, and Google's own are among them."""
    page = seen.open("/connections")
    page.get_by_role("button", name="Add Connection").click()
    form = Form(seen, page.get_by_role("dialog"))
    form.choose("Connection Type", "Google Cloud TPU")
    form.unfold("Extra Fields")
    for label in ("Project id", "Key file JSON", "TPU API endpoint", "Cloud Storage endpoint"):
        form.text(label).wait_for()
    form.dialog.get_by_role("spinbutton", name="SSH port of the TPU VMs", exact=True).wait_for()
    seen.keep("connection")


def is_explained(seen: Screen, dag: str) -> None:
    """A task's page has its documentation behind a button."""
    page = seen.open(f"/dags/{dag}/tasks/lease")
    page.get_by_role("button", name="Documentation", exact=True).click()
    page.get_by_text(re.compile("^Take the lease of this DAG run")).wait_for()
    seen.keep("task-docs")


def has_names(form: Form) -> None:
    """Every field of the form is found by what stands beside it, in its section; the first section is open."""
    schemas = [param.schema for param in train_params().values()]
    assert list(dict.fromkeys(schema["section"] for schema in schemas)) == list(SECTIONS)
    for section in SECTIONS:
        if section != WHAT:
            form.unfold(section)
        for schema in (schema for schema in schemas if schema["section"] == section):
            field(form, schema).wait_for(state="attached")
        form.screen.keep(f"form-{section.split()[0].lower()}", TALL)


def field(form: Form, schema: dict[str, Any]) -> Locator:
    """A field of the form, by its role and name."""
    if "enum" in schema:
        return form.dialog.get_by_role("combobox", name=schema["title"], exact=True)
    if schema["type"] == "boolean":
        return form.dialog.get_by_role("checkbox", name=schema["title"], exact=True)
    if schema["type"] in ("integer", "number"):
        return form.dialog.get_by_role("spinbutton", name=schema["title"], exact=True)
    return form.text(schema["title"])
