"""Faults, each an action on a scene at its moment; some have to be prepared before the run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tests.faults.cells import Cell
from tests.faults.scene import Scene

BURST = 4
SILENCE = 2.0
"""Seconds for which the API still says READY although the machine is gone."""
FROZEN = 6.0

Act = Callable[[Scene], None]
_MESSAGES = {8: "Quota 'TPU API requests' exceeded for requests per minute", 14: "the service is unavailable"}


def nothing(scene: Scene) -> None:
    """Do nothing: the fault was prepared before the run began."""


def prepare(scene: Scene, cell: Cell) -> None:
    """Script a fault that waits in the local cloud until a request meets it."""
    how = _PREPARED.get((cell.where, cell.what)) or _PREPARED.get(("", cell.what))
    if how is not None:
        how(scene)


def act_of(cell: Cell) -> Act:
    """Return the action for the moment when the phase is reached."""
    return _ACTS.get(cell.what) or _ACTS.get(cell.id, nothing)


def _preempt(scene: Scene) -> None:
    node = scene.node("CREATING", "READY")
    assert node is not None
    scene.cloud.preempt(node)


def _preempt_silently(scene: Scene) -> None:
    node = scene.node("CREATING", "READY")
    assert node is not None
    _on_crew(scene, lambda worker: worker.kill())
    threading.Timer(SILENCE, lambda: scene.cloud.preempt(node)).start()


def _cut(scene: Scene) -> None:
    _on_crew(scene, lambda worker: worker.drop())


def _freeze(scene: Scene) -> None:
    _on_crew(scene, lambda worker: worker.freeze())
    threading.Timer(FROZEN, lambda: _on_crew(scene, lambda worker: worker.thaw())).start()


def _change_host_key(scene: Scene) -> None:
    _on_crew(scene, lambda worker: worker.rotate_host_key())
    _cut(scene)


def _on_crew(scene: Scene, action: Callable[[Any], Any]) -> None:
    crew: Any = scene.crew()
    scene.cloud.run(crew.each(action))


def _calls(code: int, times: int = BURST) -> Act:
    def act(scene: Scene) -> None:
        message = _MESSAGES.get(code, "")
        told: dict[str, Any] = {"message": message} if message else {}
        scene.add_fault("tpu.call", times, code=code, **told)

    return act


def _storage_stumbles(scene: Scene) -> None:
    scene.add_fault("gcs.request", 1000, every=10, action="503")


def _refuse(what: str) -> Act:
    match = {"object": f"*/{what}/*", "method": "P*"}
    return lambda scene: scene.add_fault("gcs.request", 1000, match=match, action="403")


def _operation(verb: str, **params: Any) -> Act:
    return lambda scene: scene.add_fault("tpu.operation", match={"verb": verb}, **params)


def _ssh(**params: Any) -> Act:
    return lambda scene: scene.add_fault("vm.ssh", match={"node": "*-1"}, **params)


_ACTS: dict[str, Act] = {
    "preempted, loudly": _preempt,
    "preempted, silently": _preempt_silently,
    "vanishes": Scene.delete_as_somebody_else,
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
