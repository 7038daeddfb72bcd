# SPDX-License-Identifier: Apache-2.0
"""The matrix of phases and faults: its cells, those that make no sense, and how each has to end."""

from __future__ import annotations

from dataclasses import dataclass

WHERE = (
    "before create",
    "creating",
    "waiting",
    "booting",
    "shipping",
    "starting",
    "training",
    "checkpointing",
    "copying",
    "deleting",
)
"""Phases of a run, in order."""

WHAT = (
    "preempted, loudly",
    "preempted, silently",
    "vanishes",
    "operation never ends",
    "operation fails with code 13",
    "429 burst",
    "503 burst",
    "token expired",
    "SSH cut",
    "SSH frozen",
    "key late",
    "host key changed",
    "storage 503 on 10 %",
    "storage refuses writes",
)
"""What goes wrong there."""

KILLS = ("task killed", "scheduler killed", "triggerer killed")
"""What dies of Airflow itself there: the process of the task that is in that phase, the scheduler with all its tasks,
the triggerer that waits in place of the task. Tried on real processes, in tests/airflow/test_workers.py."""

_NO_NODE = "there is no node yet"
_NO_MACHINE = "there is no machine to connect to"
_NO_OPERATION = "no operation is running"
_ONCE = "happens once in the life of a VM, while it boots"
_GOING = "the node is being deleted already"
_EARLY = ("before create", "creating", "waiting")
_CONNECTED = ("shipping", "starting", "training", "checkpointing", "copying")
_DEFERRED = ("creating", "waiting", "booting", "starting", "training", "checkpointing", "deleting")
_SSH = ("SSH cut", "SSH frozen")
_LOSSES = WHAT[:3]


@dataclass(frozen=True)
class Cell:
    """One cell of the matrix.

    :param where: phase.
    :param what: trouble.
    """

    where: str
    what: str

    @property
    def id(self) -> str:
        """Name of its test case."""
        return f"{self.where}: {self.what}"

    @property
    def state(self) -> str:
        """How the DAG run has to end."""
        return "failed" if self in FAILING else "success"

    @property
    def loss(self) -> str:
        """What the ledger has to call the end of the first TPU; empty where none is taken away."""
        if self.what not in _LOSSES:
            return ""
        return "preempted" if self.what.startswith("preempted") else "vanished"


def reason_against(cell: Cell) -> str:
    """Why a cell makes no sense; empty if it does."""
    where, what = cell.where, cell.what
    if what in KILLS:
        return "the task is in its worker then" if what == "triggerer killed" and where not in _DEFERRED else ""
    if what in _LOSSES and where in ("before create", "creating"):
        return _NO_NODE
    if what == "preempted, silently" and where == "waiting":
        return "there is no machine yet that could die"
    if what in _LOSSES and where == "deleting":
        return _GOING
    if what.startswith("operation") and where not in ("creating", "deleting"):
        return _NO_OPERATION
    if what in _SSH and where not in _CONNECTED:
        return _NO_MACHINE if where in _EARLY else "nothing is connected then"
    if what == "storage refuses writes" and where not in ("starting", "checkpointing", "copying"):
        return "the run writes nothing then"
    if what == "key late" and where != "booting":
        return _ONCE
    if what == "host key changed" and where not in ("booting", *_CONNECTED):
        return _NO_MACHINE if where in _EARLY else "nothing connects any more"
    return ""


ALL_KILLS = tuple(Cell(where, what) for where in WHERE for what in KILLS)
ALL = tuple(Cell(where, what) for where in WHERE for what in WHAT)
CELLS = tuple(cell for cell in ALL if not reason_against(cell))

FAILING = {
    **{Cell(where, "host key changed"): "another host key than the one pinned" for where in ("booting", *_CONNECTED)},
    Cell("starting", "storage refuses writes"): "may not use the run's checkpoints",
    Cell("copying", "storage refuses writes"): "could not be uploaded",
}
"""Cells in which the run has to fail, since no other try helps, and what its log says then."""

KNOWN: dict[Cell, str] = {}
"""Cells that do not yet end as they should, and what is wrong."""

CHOSEN = frozenset(
    {
        Cell("before create", "token expired"),
        Cell("creating", "operation never ends"),
        Cell("creating", "operation fails with code 13"),
        Cell("waiting", "vanishes"),
        Cell("waiting", "429 burst"),
        Cell("booting", "key late"),
        Cell("booting", "host key changed"),
        Cell("booting", "preempted, silently"),
        Cell("shipping", "SSH cut"),
        Cell("starting", "SSH frozen"),
        Cell("training", "preempted, loudly"),
        Cell("checkpointing", "storage 503 on 10 %"),
        Cell("copying", "storage refuses writes"),
        Cell("copying", "preempted, loudly"),
        Cell("deleting", "503 burst"),
    }
)
"""The cells of every test run: each phase and each trouble at least once. ``make soak`` tries all of them."""
