# SPDX-License-Identifier: Apache-2.0
"""Measure what a preemption costs: work done again and time spent saving, against the optimum of Young and Daly.

Run ``python benchmarks/lost_work.py [--mtbf 16] [--save 0.2] [--interval 2.5] [--preemptions 16]``. A run on machines
that vanish with their disks, its checkpoints mirrored into a bucket of the local cloud; the times between preemptions
are those of an exponential distribution. All times are scaled: an hour between preemptions is some seconds here, and
the mirror looks every 0.05 s instead of every 5 s. Once without a notice, once with one, as a stop command.

The yardstick: with checkpoints of cost C and failures every M seconds, the expected waste of the best interval (J. W.
Young, CACM 17(9), 1974; J. T. Daly, FGCS 22(3), 2006, without restart time). The goal is below 1.2 times that.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "plugins"), str(ROOT)]

from airflow_tpu.core.run.job import RunRef  # noqa: E402 - the packages are found through the line above
from tests.remote.checkpoint_server import CheckpointServer  # noqa: E402
from tests.remote.mirrored_run import MirroredRun  # noqa: E402
from tests.remote.vm import Machine, processes_with, until  # noqa: E402

STEP_SECS = 0.02
MIRROR_SECS = 0.05
GOAL = 1.2


@dataclass(frozen=True)
class Plan:
    """One series.

    :param mtbf: mean seconds from the first step of an attempt to its preemption.
    :param save: seconds of a checkpoint.
    :param interval: seconds of work between two checkpoints.
    :param preemptions: how many.
    """

    mtbf: float
    save: float
    interval: float
    preemptions: int

    def lives(self) -> list[float]:
        """Seconds of each attempt: evenly spread over the distribution, so that few of them are like many."""
        count = self.preemptions
        drawn = [-math.log(1.0 - (number + 0.5) / count) for number in range(count)]
        random.Random(1).shuffle(drawn)
        return [self.mtbf * value * count / sum(drawn) for value in drawn]


@dataclass(frozen=True)
class Cost:
    """What a series has cost for each preemption, in seconds.

    :param lost: work that had to be done again.
    :param saving: time spent in checkpoints.
    :param save: measured length of one checkpoint.
    :param mtbf: measured life of an attempt.
    """

    lost: float
    saving: float
    save: float
    mtbf: float

    @property
    def optimum(self) -> float:
        """Expected waste for each preemption with the best interval."""
        intervals = [self.mtbf * number / 10_000 for number in range(1, 10_000)]
        return min(waste(interval, self.save, self.mtbf) for interval in intervals)

    @property
    def ratio(self) -> float:
        """Measured waste by the optimum."""
        return (self.lost + self.saving) / self.optimum


def waste(interval: float, save: float, mtbf: float) -> float:
    """Expected seconds for each failure that are not progress (Daly's equation 13 without restart time)."""
    stretched = mtbf / interval * math.expm1((interval + save) / mtbf)
    return mtbf * (1.0 - 1.0 / stretched)


def series(plan: Plan, notice: bool, folder: Path) -> Cost:
    """Preempt a run so many times; every attempt gets an empty machine."""
    journal = folder / "journal"
    journal.touch()
    every = max(1, round(plan.interval / STEP_SECS))
    script = Path(__file__).with_name("paced_training.py")
    argv = [sys.executable, str(script), str(every), str(STEP_SECS), str(plan.save), str(journal)]
    ends = []
    with CheckpointServer(folder / "bucket") as bucket:
        for attempt, life in enumerate([*plan.lives(), 0.0], start=1):
            machine = Machine(folder / f"machine-{attempt}", sys.executable)
            run = MirroredRun(machine, bucket, folder / "allow")
            ref = run.start(*argv, attempt=attempt, mirror_secs=MIRROR_SECS)
            time.sleep(max(0.0, begin(journal, attempt) + life - time.time()))
            ends.append(end(run, ref, notice))
            shutil.rmtree(machine.home)
    return cost(rows(journal), ends)


def end(run: MirroredRun, ref: RunRef, notice: bool) -> float:
    """Take the machine away, at once or as one that shuts down; returns when, in Unix seconds."""
    if notice:
        run.machine.stop(20.0, ref)
    everything = processes_with(f"HOME={run.machine.home}")
    instant = time.time()
    for process in everything:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    run.machine.kill_all()
    return instant


def rows(journal: Path) -> list[dict[str, Any]]:
    """Return the rows of the journal; its last line may be torn."""
    return [json.loads(line) for line in journal.read_text().splitlines() if line.endswith("}")]


def begin(journal: Path, attempt: int) -> float:
    """Wait for the first step of an attempt; return when it was, in Unix seconds."""
    return float(until(lambda: next((row["at"] for row in rows(journal) if row["attempt"] == attempt), 0.0), 60.0))


def cost(journal: list[dict[str, Any]], ends: list[float]) -> Cost:
    """Add up what the attempts but the last have done.

    :param journal: what they have noted.
    :param ends: when each was killed; one that had ended by itself before did nothing more.
    """
    attempts: dict[int, list[dict[str, Any]]] = {}
    for row in journal:
        attempts.setdefault(row["attempt"], []).append(row)
    count = len(attempts) - 1
    useful = lived = 0.0
    saves: list[float] = []
    for attempt in range(1, count + 1):
        mine, kept = attempts[attempt], attempts[attempt + 1][0]["step"]
        useful += sum(row["secs"] for row in mine if row["kind"] == "step" and row["step"] <= kept)
        saves += [row["secs"] for row in mine if row["kind"] == "save"]
        asked = [row["at"] + row["secs"] for row in mine if row["kind"] == "last"]
        lived += min([ends[attempt - 1], *asked]) - mine[0]["at"]
    saving = sum(saves)
    return Cost((lived - useful - saving) / count, saving / count, saving / len(saves), lived / count)


def show(name: str, result: Cost) -> None:
    """Print one series."""
    print(
        f"{name:<15} lost {result.lost:.3f} s and saving {result.saving:.3f} s a preemption, optimum of both "
        f"{result.optimum:.3f} s: ratio {result.ratio:.2f}",
        f"                (a checkpoint took {result.save:.3f} s, an attempt lived {result.mtbf:.2f} s)",
        sep="\n",
        flush=True,
    )


def main() -> int:
    """Run both series; return 1 if the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mtbf", type=float, default=16.0)
    parser.add_argument("--save", type=float, default=0.2)
    parser.add_argument("--interval", type=float, help="default: Young's, the square root of 2 C M")
    parser.add_argument("--preemptions", type=int, default=16)
    given = parser.parse_args()
    interval = given.interval or math.sqrt(2.0 * given.save * given.mtbf)
    plan = Plan(given.mtbf, given.save, interval, given.preemptions)
    print(
        f"{plan.preemptions} preemptions, M = {plan.mtbf} s, C = {plan.save} s, interval {interval:.2f} s", flush=True
    )
    results = []
    for name, notice in (("without notice", False), ("with notice", True)):
        with tempfile.TemporaryDirectory() as folder:
            results.append(series(plan, notice, Path(folder)))
        show(name, results[-1])
    return int(results[0].ratio >= GOAL)


if __name__ == "__main__":
    sys.exit(main())
