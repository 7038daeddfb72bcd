# SPDX-License-Identifier: Apache-2.0
"""Measure in a whole Airflow what no process alone can show: how long a TPU is held, how soon a lost one is replaced.

Run ``python benchmarks/in_airflow.py [held] [preempted] [flood]``; without a name it measures all of them. It starts
an Airflow of its own with the package's own settings, and a local cloud.

* ``held``: seconds for which a TPU is charged by a script that ends at once; the TPU takes 40 s to come.
* ``preempted``: seconds from a preemption to the first line of the next attempt, without those of the new TPU's own.
* ``flood``: a script that prints 20 MB in a second, the same by the SSH operator of Airflow's provider; two at once.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "plugins"), str(ROOT)]

from localcloud.rules.settings import Latencies, Settings  # noqa: E402 - the packages are found through the line above
from localcloud.server import LocalCloudConfig  # noqa: E402
from localcloud.testing import BackgroundCloud, eventually  # noqa: E402
from tests.airflow import variants  # noqa: E402
from tests.airflow.runs import TIMEOUT, TrainingRun  # noqa: E402
from tests.airflow.settings import connections  # noqa: E402
from tests.airflow.stack import TRIGGERERS, Stack  # noqa: E402
from tests.dags.evidence import BUCKET, bucket, instant, ready_spans, upload  # noqa: E402

PROVISIONING = 40.0
HOLD = 10.0
# What the tests of a whole Airflow set otherwise, for a machine with more to do.
DEFAULTS = {
    "AIRFLOW__AIRFLOW_TPU__RETRY_SECONDS": "15",
    "AIRFLOW__AIRFLOW_TPU__EVENT_HOLD_SECONDS": f"{HOLD:g}",
    "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "1",
}
BLOCKED = re.compile(r"async thread was blocked for ([\d.]+) s")
AT_ONCE = "print('done', flush=True)\nopen(__import__('os').environ['TRC_OUTPUT_DIR'] + '/done.txt', 'w').write('x')\n"


@contextlib.contextmanager
def airflow(folder: Path, inline: float) -> Iterator[tuple[Stack, BackgroundCloud]]:
    """A whole Airflow and a local cloud that has the scripts."""
    dags, home = folder / "dags", folder / "airflow"
    dags.mkdir()
    home.mkdir()
    variants.write(dags)
    latencies = Settings(latencies=Latencies(creating=PROVISIONING))
    config = LocalCloudConfig(state_dir=folder / "cloud", buckets={BUCKET: "US-CENTRAL1"}, settings=latencies)
    with BackgroundCloud(config) as cloud:
        upload(cloud, "scripts/at_once.py", AT_ONCE)
        upload(cloud, "scripts/steady.py", (ROOT / "tests/airflow/files/steady.py").read_text(encoding="utf-8"))
        upload(cloud, "scripts/flood.py", Path(__file__).with_name("flood.py").read_text(encoding="utf-8"))
        settings = {**DEFAULTS, "AIRFLOW__AIRFLOW_TPU__INLINE_SECONDS": f"{inline:g}"}
        with Stack(home, dags, {**connections(cloud), **settings}) as stack:
            yield stack, cloud


def charged(run: TrainingRun) -> list[float]:
    """Seconds for which each TPU of a run was READY, by the meter of the local cloud."""
    spans = ready_spans(run.cloud, set(run.ledger()))
    return [sum((span.end - span.start).total_seconds() for span in of_node) for of_node in spans.values()]


def times(run: TrainingRun) -> str:
    """When each task of a run began and ended, in seconds after its TPU became READY."""
    ready = min(spans[0].start for spans in ready_spans(run.cloud, set(run.ledger())).values())
    rows = run.client.call(f"{run.path}/taskInstances")["task_instances"]
    rows.sort(key=lambda row: row["end_date"])

    def since(text: str) -> str:
        return f"{(instant(text) - ready).total_seconds():.1f}"

    return ", ".join(f"{row['task_id']} {since(row['start_date'])} to {since(row['end_date'])}" for row in rows)


def held(stack: Stack, cloud: BackgroundCloud) -> None:
    """How long a TPU is charged by a script that ends at once."""
    run = TrainingRun(stack, stack.client(), cloud, variants.TRAIN, f"held-{time.time():.0f}")
    run.trigger(script=f"gs://{BUCKET}/scripts/at_once.py")
    assert set(run.until_over().values()) == {"success"}
    print(f"held: {charged(run)[0]:.1f} s for a training of 0 s ({times(run)})", flush=True)


def preempted(stack: Stack, cloud: BackgroundCloud) -> None:
    """How soon the next attempt of a preempted training prints its first line."""
    run = TrainingRun(stack, stack.client(), cloud, variants.TRAIN, f"preempted-{time.time():.0f}")
    run.trigger()
    run.until_training("deferred")
    time.sleep(HOLD)  # within it no trigger of ours ends
    (node,) = [row["name"] for row in cloud.snapshot()["nodes"] if f"/{run.key.name}-" in row["name"]]
    lost = dt.datetime.now(dt.UTC)
    cloud.preempt(node)
    eventually(run.starts, lambda found: len(found) > 1, TIMEOUT, 0.2)
    begun = dt.datetime.fromtimestamp(max(int(name.partition("-")[2]) for name in run.starts()) / 1e9, dt.UTC)
    run.let_end()
    run.until_over()
    calls = cloud.call(lambda: cloud.cloud.dump(calls=True))["audit"]
    asked = min(at for call in calls if call["method"] == "Tpu/CreateNode" and (at := instant(call["at"])) > lost)
    ready = min(s[0].start for s in ready_spans(cloud, set(run.ledger())).values() if s[0].start > lost)
    own = (ready - asked).total_seconds()
    total = (begun - lost).total_seconds()
    rest = (asked - lost).total_seconds(), (begun - ready).total_seconds()
    print(
        f"preempted: {total - own:.1f} s to training ({rest[0]:.1f} s to the create, {rest[1]:.1f} s from READY)",
        flush=True,
    )


def flood(stack: Stack, cloud: BackgroundCloud) -> None:
    """How soon the end of a script is noticed that prints 20 MB; and two at once."""
    for count in (1, 2):
        runs = [
            TrainingRun(stack, stack.client(), cloud, variants.TRAIN, f"flood-{count}-{number}-{time.time():.0f}")
            for number in range(count)
        ]
        before = [len(stack.log(name)) for name in TRIGGERERS]
        for run in runs:
            run.trigger(script=f"gs://{BUCKET}/scripts/flood.py", arguments="20000000")
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(lambda run: run.until_over(), runs))
        logs = [stack.log(name)[start:] for name, start in zip(TRIGGERERS, before, strict=True)]
        blocks = [float(found) for log in logs for found in BLOCKED.findall(log)]
        for run in runs:
            blob = bucket(cloud).blob(f"airflow-tpu/runs/{run.key.name}/train/attempt-1/log.txt")
            text = blob.download_as_text()
            ended = dt.datetime.fromtimestamp(float(text.rpartition("ended ")[2].split()[0]), dt.UTC)
            seen = (instant(run.task("train")["end_date"]) - ended).total_seconds()
            print(
                f"flood, {count} at once: train ends {seen:.1f} s after the script, "
                f"TPU charged {charged(run)[0]:.1f} s, "
                f"{len(text)} bytes in the bucket, longest block {max(blocks, default=0.0):.2f} s ({times(run)})",
                flush=True,
            )


def main() -> None:
    """Measure what is asked for."""
    known = {"held": held, "preempted": preempted, "flood": flood}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=[*known, []], default=list(known))
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--inline", type=float, default=20.0, help="seconds that a worker waits before a trigger does")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, airflow(Path(folder), given.inline) as (stack, cloud):
        for name in given.what * given.times:
            known[name](stack, cloud)


if __name__ == "__main__":
    main()
