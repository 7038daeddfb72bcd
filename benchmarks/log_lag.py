# SPDX-License-Identifier: Apache-2.0
"""Measure how old a line of the training is when it can first be seen: in Airflow's REST API, and on its log page.

Run ``python benchmarks/log_lag.py [--refresh 1] [--seconds 60]``. It starts a whole Airflow of its own, trains twice on
a TPU of the local cloud, and reads the log of the task ``train`` meanwhile: as the log page does it, but four times a
second, and in the page itself, in Chromium. Once the worker follows the training to its end, once it hands over to a
triggerer after some seconds. ``--refresh`` is Airflow's ``[api] auto_refresh_interval``, by default 3 seconds, after
which an open page asks again.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "plugins"), str(ROOT)]

from localcloud.server import LocalCloudConfig  # noqa: E402 - the packages are found through the line above
from localcloud.testing import BackgroundCloud  # noqa: E402
from tests.airflow import variants  # noqa: E402
from tests.airflow.runs import TIMEOUT, TrainingRun  # noqa: E402
from tests.airflow.screens import run_page, screen  # noqa: E402
from tests.airflow.settings import connections  # noqa: E402
from tests.airflow.stack import Stack  # noqa: E402
from tests.dags.evidence import BUCKET, upload  # noqa: E402

READ_SECS = 0.25
TICK = re.compile(r"tick (\d+\.\d{3})")
HANDOVER, LET_GO = "the log continues in the triggerer", -1.0
# Looks at the page ten times a second; Airflow draws only the lines that fit into the window.
WATCH = """() => {
    window.ticks = {};
    setInterval(() => {
        const now = Date.now() / 1000;
        for (const [, tick] of document.body.textContent.matchAll(/tick (\\d+\\.\\d{3})/g)) window.ticks[tick] ??= now;
    }, 100);
}"""
TALL = 4000

Sightings = dict[float, float]
"""By the time a line was printed, the time it was first seen, both in Unix seconds."""


@contextlib.contextmanager
def airflow(folder: Path, refresh: int) -> Iterator[tuple[Stack, BackgroundCloud]]:
    """A whole Airflow and a local cloud that has the script."""
    dags, home = folder / "dags", folder / "airflow"
    dags.mkdir()
    home.mkdir()
    variants.write(dags)
    (home / "airflow.cfg").write_text(f"[api]\nauto_refresh_interval = {refresh}\n")
    with BackgroundCloud(LocalCloudConfig(state_dir=folder / "cloud", buckets={BUCKET: "US-CENTRAL1"})) as cloud:
        upload(cloud, "scripts/ticking.py", Path(__file__).with_name("ticking.py").read_text(encoding="utf-8"))
        with Stack(home, dags, connections(cloud)) as stack:
            yield stack, cloud


def read(run: TrainingRun, over: Event) -> Sightings:
    """Read the whole log again and again, as the page does; the key -1 is the line of the handover."""
    seen: Sightings = {}
    path = f"{run.client.url}{run.path}/taskInstances/train/logs/1"
    headers = {"Accept": "application/x-ndjson", "Authorization": f"Bearer {run.client.token}"}
    while not over.is_set():
        with urllib.request.urlopen(urllib.request.Request(path, headers=headers), timeout=120) as answer:
            text = answer.read().decode()
        now = time.time()
        for tick in [*TICK.findall(text), *([LET_GO] if HANDOVER in text else [])]:
            seen.setdefault(float(tick), now)
        time.sleep(READ_SECS)
    return seen


def look(run: TrainingRun, begin: Callable[[], None], over: Event) -> Sightings:
    """Leave the log page open, from the first moment of the task on."""
    with screen(run.stack.url) as tab:
        tab.page.set_viewport_size({"width": 1280, "height": TALL})
        begin()
        run.until("train", "running")
        tab.open(run_page(run.dag, run.name, "train"))
        tab.page.evaluate(WATCH)
        while not over.is_set():
            tab.page.wait_for_timeout(500)
        found: Mapping[str, float] = tab.page.evaluate("window.ticks")
        opened = min(found.values())
        return {float(tick): seen for tick, seen in found.items() if float(tick) > opened}


def measure(run: TrainingRun, seconds: float) -> tuple[Sightings, Sightings]:
    """Train, and see the lines come: in the API, and in the page, once it is open."""
    begun, over = Event(), Event()

    def begin() -> None:
        run.trigger(script=f"gs://{BUCKET}/scripts/ticking.py", arguments=f"{seconds:g}")
        begun.set()

    with ThreadPoolExecutor(2) as pool:
        in_page = pool.submit(look, run, begin, over)
        assert begun.wait(TIMEOUT)
        run.until("train", "running")
        in_api = pool.submit(read, run, over)
        try:
            run.until_over()
        finally:
            over.set()
        return in_api.result(), in_page.result()


def show(what: str, seen: Sightings) -> None:
    """Print how old lines were."""
    ages = [at - tick for tick, at in seen.items()]
    figures = f"median {statistics.median(ages):5.2f} s, max {max(ages):5.2f} s" if ages else "none of them"
    print(f"{what:<35} {len(ages):4} lines, {figures}", flush=True)


def phases(seen: Sightings) -> dict[str, set[float]]:
    """Sort the lines by who followed when they were printed; those in between are seen when the second one begins."""
    handover = seen.pop(LET_GO, 0.0)
    if not handover:
        return {"followed by the worker": set(seen)}
    late = {tick: at for tick, at in seen.items() if at > handover}
    again = min(late.values())
    return {
        "handed over": {tick for tick in late if tick < again},
        "followed by the triggerer": {tick for tick in late if tick >= again},
    }


def main() -> None:
    """Measure both ways to follow a log: in the worker, and handed over to the triggerer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--refresh", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, airflow(Path(folder), given.refresh) as (stack, cloud):
        for dag in (variants.WORKING, variants.TRAIN):
            run = TrainingRun(stack, stack.client(), cloud, dag, f"lag-{dag.replace('_', '-')}")
            seen, drawn = measure(run, given.seconds)
            for phase, ticks in phases(seen).items():
                show(f"{phase}, REST API", {tick: at for tick, at in seen.items() if tick in ticks})
                show(f"{phase}, log page", {tick: at for tick, at in drawn.items() if tick in ticks})


if __name__ == "__main__":
    main()
