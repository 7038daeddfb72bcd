# SPDX-License-Identifier: Apache-2.0
"""Where x what: whatever goes wrong wherever, the result is that of an undisturbed run, and nothing is left."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localcloud.testing import BackgroundCloud, eventually
from tests.dags.evidence import check_books, events, names_left, objects
from tests.faults import training
from tests.faults.cells import CELLS, CHOSEN, FAILING, KNOWN, WHAT, WHERE, Cell
from tests.faults.observed_run import ObservedRun
from tests.faults.troubles import act_of, prepare

Run = Callable[..., Any]
ROOT = Path(__file__).resolve().parents[2]


def undisturbed() -> int:
    """What the training ends with when nothing happens."""
    state = 1
    for step in range(training.STEPS):
        state = training.advance(state, step)
    return state


def marks(cell: Cell) -> list[pytest.MarkDecorator]:
    """A few cells in every test run, all of them in the soak."""
    found = [pytest.mark.slow if cell in CHOSEN else pytest.mark.soak]
    return [*found, pytest.mark.xfail(strict=True, reason=KNOWN[cell])] if cell in KNOWN else found


def test_every_phase_and_every_trouble_is_in_each_test_run() -> None:
    """The chosen cells are cells, and leave no row and no column out."""
    assert set(CELLS) >= CHOSEN
    assert {cell.where for cell in CHOSEN} == set(WHERE)
    assert {cell.what for cell in CHOSEN} == set(WHAT)


@pytest.mark.parametrize("cell", [pytest.param(cell, id=cell.id, marks=marks(cell)) for cell in CELLS])
def test_cell(cell: Cell, cloud: BackgroundCloud, run_dag: Run) -> None:
    """The run ends as it should, right result or stated loss; one copy at a time, nothing left, true books."""
    observed = ObservedRun(cloud, f"t{uuid.uuid4().hex[:10]}.py")
    prepare(observed, cell)
    with observed.at(cell.where, act_of(cell)):
        outcome = run_dag(script=observed.upload(), provisioning="node")
    note(cell, outcome, observed)
    assert observed.struck
    assert observed.idle_faults == []
    assert outcome.state == cell.state, outcome.log[-6000:]
    clean_up(cloud, run_dag)
    assert observed.most_alive <= 1
    eventually(observed.alive, lambda count: count == 0, 30.0)
    assert names_left(cloud) == []
    check_books(cloud)
    check_loss(cloud, cell)
    keep(cloud)
    if cell.state == "success":
        assert result_of(cloud) == undisturbed()
    else:
        assert FAILING[cell] in outcome.log


def clean_up(cloud: BackgroundCloud, run_dag: Run) -> None:
    """What the reaper does if a teardown could not."""
    cloud.cloud.faults.clear()
    if names_left(cloud):
        assert run_dag("tpu_reaper", ROOT / "dags" / "tpu_reaper.py").state == "success"


def check_loss(cloud: BackgroundCloud, cell: Cell) -> None:
    """The ledger calls the loss of the first TPU by its name; a run that ended before it could be lost has one TPU."""
    ends = [event["end_reason"] for event in events(cloud, "closed")]
    assert not cell.loss or len(ends) == 1 or ends[0] == cell.loss, ends


def result_of(cloud: BackgroundCloud) -> int:
    """What the newest attempt has left in the bucket."""
    models = {name: body for name, body in objects(cloud).items() if name.endswith("/output/model.json")}
    newest = max(models, key=lambda name: int(name.split("/attempt-")[1].split("/")[0]))
    return int(json.loads(models[newest])["state"])


def note(cell: Cell, outcome: Any, observed: ObservedRun) -> None:
    """Append what was seen to the file that ``scripts/soak`` makes the page of."""
    path = os.environ.get("FAULT_MATRIX_LOG")
    if path:
        ends = [event["end_reason"] for event in events(observed.cloud, "closed")]
        row = {"where": cell.where, "what": cell.what, "state": outcome.state, "tries": outcome.tries, "ends": ends}
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def keep(cloud: BackgroundCloud) -> None:
    """Append the run's ledger to the file that ``scripts/soak`` leaves to the tests of the usage page."""
    path = os.environ.get("FAULT_MATRIX_LEDGER")
    if path:
        lines = [json.dumps(event, sort_keys=True) for kind in ("opened", "closed") for event in events(cloud, kind)]
        with open(path, "a", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))
