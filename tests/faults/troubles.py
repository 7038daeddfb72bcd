# SPDX-License-Identifier: Apache-2.0
"""Faults, each an action on a observed at its moment; some have to be prepared before the run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tests.faults.cells import Cell
from tests.faults.observed_run import ObservedRun

BURST = 4
SILENCE = 2.0
"""Seconds for which the API still says READY although the machine is gone."""
FROZEN = 6.0

Act = Callable[[ObservedRun], None]
_MESSAGES = {8: "Quota 'TPU API requests' exceeded for requests per minute", 14: "the service is unavailable"}


def nothing(observed: ObservedRun) -> None:
    """Do nothing: the fault was prepared before the run began."""


def prepare(observed: ObservedRun, cell: Cell) -> None:
    """Script a fault that waits in the local cloud until a request meets it."""
    how = _PREPARED.get((cell.where, cell.what)) or _PREPARED.get(("", cell.what))
    if how is not None:
        how(observed)


def act_of(cell: Cell) -> Act:
    """Return the action for the moment when the phase is reached."""
    return _ACTS.get(cell.what) or _ACTS.get(cell.id, nothing)


def _preempt(observed: ObservedRun) -> None:
    node = observed.node("CREATING", "READY")
    assert node is not None
    observed.cloud.preempt(node)


def _preempt_silently(observed: ObservedRun) -> None:
    node = observed.node("CREATING", "READY")
    assert node is not None
    _on_crew(observed, lambda worker: worker.kill())
    threading.Timer(SILENCE, lambda: observed.cloud.preempt(node)).start()


def _cut(observed: ObservedRun) -> None:
    _on_crew(observed, lambda worker: worker.drop())


def _freeze(observed: ObservedRun) -> None:
    _on_crew(observed, lambda worker: worker.freeze())
    threading.Timer(FROZEN, lambda: _on_crew(observed, lambda worker: worker.thaw())).start()


def _change_host_key(observed: ObservedRun) -> None:
    _on_crew(observed, lambda worker: worker.rotate_host_key())
    _cut(observed)


def _on_crew(observed: ObservedRun, action: Callable[[Any], Any]) -> None:
    node_workers: Any = observed.node_workers()
    observed.cloud.run(node_workers.each(action))


def _calls(code: int, times: int = BURST) -> Act:
    def act(observed: ObservedRun) -> None:
        message = _MESSAGES.get(code, "")
        told: dict[str, Any] = {"message": message} if message else {}
        observed.add_fault("tpu.call", times, code=code, **told)

    return act


def _storage_stumbles(observed: ObservedRun) -> None:
    observed.add_fault("gcs.request", 1000, every=10, action="503")


def _refuse(what: str) -> Act:
    match = {"object": f"*/{what}/*", "method": "P*"}
    return lambda observed: observed.add_fault("gcs.request", 1000, match=match, action="403")


def _operation(verb: str, **params: Any) -> Act:
    return lambda observed: observed.add_fault("tpu.operation", match={"verb": verb}, **params)


def _ssh(**params: Any) -> Act:
    return lambda observed: observed.add_fault("vm.ssh", match={"node": "*-1"}, **params)


_ACTS: dict[str, Act] = {
    "preempted, loudly": _preempt,
    "preempted, silently": _preempt_silently,
    "vanishes": ObservedRun.delete_as_somebody_else,
    "429 burst": _calls(8),
    "503 burst": _calls(14),
    "token expired": _calls(16, 1),
    "SSH cut": _cut,
    "SSH frozen": _freeze,
    "host key changed": _change_host_key,
    "storage 503 on 10 %": _storage_stumbles,
    "checkpointing: storage refuses writes": _refuse("checkpoints"),
}
_PREPARED: dict[tuple[str, str], Act] = {
    ("creating", "operation never ends"): _operation("create", action="never"),
    ("creating", "operation fails with code 13"): _operation("create", action="error", code=13),
    ("deleting", "operation never ends"): _operation("delete", action="never"),
    ("deleting", "operation fails with code 13"): _operation("delete", action="error", code=13),
    ("starting", "storage refuses writes"): _refuse("checkpoints"),
    ("copying", "storage refuses writes"): _refuse("output"),
    ("", "key late"): _ssh(key_late_seconds=2.0),
}
