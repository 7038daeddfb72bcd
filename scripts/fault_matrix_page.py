# SPDX-License-Identifier: Apache-2.0
"""Write docs/fault-matrix.md: the outcome of each fault in each phase of a run.

Usage: ``fault_matrix_page.py CELLS.xml CELLS.jsonl KILLS.xml... > docs/fault-matrix.md``, as ``scripts/soak`` does.
The XML files are pytest's reports (which cells passed), the other is what each run has left (how many tries and TPUs it
took). tests/faults/cells.py has the cells, and why others make no sense; a test compares the page with it.
"""

from __future__ import annotations

import datetime as dt
import json
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

sys.path.append(str(Path(__file__).parents[1]))

from tests.faults.cells import ALL, ALL_KILLS, CELLS, FAILING, KILLS, KNOWN, WHAT, WHERE, Cell, reason_against

ROOT = Path(__file__).parents[1]
OK, REFUSED, NOT_YET, BROKEN, NOT_RUN = "ok", "refused", "not yet", "FAILED", "not run"
REASONS = list(dict.fromkeys(filter(None, map(reason_against, (*ALL, *ALL_KILLS)))))
LETTERS = {reason: f"({letter})" for letter, reason in zip("abcdefghijklmnop", REASONS, strict=False)}


def outcomes(report: str) -> dict[str, str]:
    """Return the outcome of each cell in pytest's report, by its name.

    :param report: JUnit XML.
    """
    cases = ElementTree.fromstring(report).iter("testcase")  # noqa: S314 - our own file, written a moment ago
    found = {case.get("name", ""): {child.tag for child in case} for case in cases}
    return {
        match[1]: _word(match[1], tags) for name, tags in found.items() if (match := re.match(r"test_\w+\[(.*)]", name))
    }


def _word(name: str, tags: set[str]) -> str:
    if tags & {"failure", "error"}:
        return BROKEN
    if "skipped" in tags:  # how JUnit XML calls a failure that is expected
        return NOT_YET
    return REFUSED if name in {cell.id for cell in FAILING} else OK


def page(words: Mapping[str, str], effort: Mapping[str, str], circumstances: str) -> str:
    """The whole page.

    :param words: outcome of each cell.
    :param effort: tries and TPUs that each cell took.
    :param circumstances: date, commit and versions.
    """
    legend = [f"- **{letter}** {reason}" for reason, letter in LETTERS.items()]
    refusals = [f"- *{cell.id}*: the log says “{text}”" for cell, text in FAILING.items()]
    known = [f"- *{cell.id}*: {reason}" for cell, reason in KNOWN.items()] or ["- none"]
    return "\n".join(
        [
            *HEAD,
            f"{circumstances} {_counted(words)}",
            "",
            *_table(WHAT, words, effort),
            "",
            *EXPLAINED,
            *legend,
            "",
            *KILLED,
            *_table(KILLS, words, effort),
            "",
            "## Where the run has to fail",
            "",
            "No other try helps; everything is still deleted and the ledger is right.",
            "",
            *refusals,
            "",
            "## What does not go as it should yet",
            "",
            *known,
            "",
        ]
    )


def _table(whats: Sequence[str], words: Mapping[str, str], effort: Mapping[str, str]) -> Iterator[str]:
    yield _row(["", *WHERE])
    yield _row(["---"] * (len(WHERE) + 1))
    for what in whats:
        yield _row([what, *(_shown(Cell(where, what), words, effort) for where in WHERE)])


def _shown(cell: Cell, words: Mapping[str, str], effort: Mapping[str, str]) -> str:
    reason = reason_against(cell)
    if reason:
        return f"- {LETTERS[reason]}"
    return " ".join(filter(None, (words.get(cell.id, NOT_RUN), effort.get(cell.id, ""))))


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _counted(words: Mapping[str, str]) -> str:
    good = sum(words.get(cell.id) in (OK, REFUSED) for cell in CELLS)
    return f"{good} of {len(CELLS)} cells go as they should; {len(ALL) - len(CELLS)} make no sense."


def read(text: str) -> dict[Cell, str]:
    """Read back what a page says of each cell: its outcome, or a dash with the letter of the reason."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    tables = [line for line in lines if line[0] in (*WHAT, *KILLS)]
    return {Cell(where, line[0]): entry for line in tables for where, entry in zip(WHERE, line[1:], strict=True)}


def efforts(lines: str) -> dict[str, str]:
    """Tries of the train task and TPUs, where it took more than one."""
    found = {}
    for row in map(json.loads, lines.splitlines()):
        cell, tries, nodes = Cell(row["where"], row["what"]), _tries(row), len(row["ends"])
        found[cell.id] = f"{tries}/{nodes}" if tries > 1 or nodes > 1 else ""
    return found


def _tries(row: Mapping[str, Any]) -> int:
    return int(row["tries"].get("train", 0))


def circumstances() -> str:
    """Date, commit and versions."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    today = dt.datetime.now(dt.UTC).date()
    return f"{today}, commit {commit}, Python {platform.python_version()}, Airflow {version('apache-airflow')}:"


HEAD = [
    "# Fault matrix",
    "",
    "<!-- Written by scripts/soak; do not edit. -->",
    "",
    "Whole runs of the DAG `tpu_train` against the local cloud, each with one fault in one phase. After each:",
    "",
    "- the DAG run is in the right state;",
    "- its result is that of an undisturbed run to the last bit, or the log names the loss;",
    "- there was never more than one live copy of the training;",
    "- no TPU, queued resource or process is left;",
    "- where a TPU was taken away the ledger calls the loss by its name: preempted, vanished, never ready;",
    "- every ledger record is closed, and the ledger has no second less than the cloud's own meter (rounding: 0.1 s).",
    "  It may have 1 s more, and where polling had to find the loss, the time until then, here at most 8 s.",
    "",
]
EXPLAINED = [
    "**ok**: the run succeeded. **refused**: it failed, as it has to. **2/2**: it took two tries of `train` and two",
    "TPUs. **-**: makes no sense, because",
    "",
]
KILLED = [
    "## Processes of Airflow, killed",
    "",
    "Whole runs on an Airflow of real processes (api-server, scheduler, DAG processor, two triggerers, PostgreSQL),",
    "driven through its REST API. SIGKILL ended the process, and the test started it again where nothing else does.",
    "After each the run is a success, its script was started exactly once, its TPU was deleted by one operation,",
    "nothing is left, and the ledger has no second less than the meter (0.5 s). It may have more here, at most 240 s:",
    "nothing polls until Airflow misses the worker.",
    "",
]

if __name__ == "__main__":
    cells, log, *kills = (Path(name).read_text(encoding="utf-8") for name in sys.argv[1:])
    words = {name: word for report in (cells, *kills) for name, word in outcomes(report).items()}
    print(page(words, efforts(log), circumstances()), end="")
