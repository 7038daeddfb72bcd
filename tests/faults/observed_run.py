# SPDX-License-Identifier: Apache-2.0
"""One run in one local cloud: seeing which phase it is in, and doing something to it at that moment."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from google.cloud import tpu_v2

from airflow_tpu import protocol
from localcloud.testing import BackgroundCloud, tpu_client
from localcloud.vm.progress import latest_step
from tests.dags.evidence import upload
from tests.faults.training import STEPS

SCRIPT = Path(__file__).with_name("training.py")
_LOOK = 0.02


@dataclass
class ObservedRun:
    """What the fault of a cell works on.

    :param cloud: where the run is.
    :param name: of the script, found in no other process of this machine.
    """

    cloud: BackgroundCloud
    name: str
    faults: list[str] = field(default_factory=list)
    most_alive: int = 0
    struck: bool = False

    def upload(self) -> str:
        """Put the script into the bucket; returns its URI."""
        return upload(self.cloud, f"scripts/{self.name}", SCRIPT.read_text(encoding="utf-8"))

    def add_fault(
        self, point: str, times: int = 1, every: int = 1, match: dict[str, str] | None = None, **params: object
    ) -> None:
        """Script a fault that has to strike."""
        spec = {"point": point, "times": times, "every": every, "match": match or {}, "params": params}
        self.faults.append(self.cloud.cloud.faults.add(spec))

    @property
    def idle_faults(self) -> list[str]:
        """Faults that have never struck."""
        return [row["id"] for row in self.cloud.cloud.faults.report() if row["id"] in self.faults and not row["used"]]

    def node(self, *states: str) -> str | None:
        """Short name of the run's node in one of some states."""
        for row in self.cloud.snapshot()["nodes"]:
            if row["state"] in states:
                return str(row["name"].rpartition("/")[2])
        return None

    def files(self, name: str) -> list[Path]:
        """Files of a name on the disks of all TPU VMs."""
        root = self.cloud.cloud.config.state_dir / "vm"
        return [Path(folder, name) for folder, _, names in os.walk(root) if name in names]

    def alive(self) -> int:
        """Processes of the training that are alive now, on whatever machine."""
        return sum(self.name.encode() in _command_line(pid) for pid in os.listdir("/proc") if pid.isdigit())

    def has_reached(self, where: str) -> bool:
        """Whether the run is in a phase."""
        return _PHASES[where](self)

    @contextmanager
    def at(self, where: str, action: Callable[[ObservedRun], None]) -> Iterator[None]:
        """Do something beside the block as soon as a phase is reached, and count the living copies all the time."""
        ended = threading.Event()
        failures: list[BaseException] = []

        def watch() -> None:
            try:
                while not ended.wait(_LOOK):
                    self.most_alive = max(self.most_alive, self.alive())
                    if not self.struck and self.has_reached(where):
                        self.struck = True
                        action(self)
            except BaseException as error:
                failures.append(error)
                raise

        watching = threading.Thread(target=watch, daemon=True)
        watching.start()
        try:
            yield
        finally:
            ended.set()
            watching.join(60.0)
        assert not failures, failures

    def node_workers(self) -> object:
        """The workers of the run's node."""
        node = self.node("READY", "CREATING")
        assert node is not None
        name = next(row["name"] for row in self.cloud.snapshot()["nodes"] if row["name"].endswith(f"/{node}"))
        return self.cloud.call(lambda: self.cloud.cloud.worker_pool.workers_of(name))

    def delete_as_somebody_else(self) -> None:
        """What a click in Google's console does."""
        row = next(row for row in self.cloud.snapshot()["nodes"] if row["state"] != "DELETING")
        tpu_client(self.cloud.endpoints).delete_node(tpu_v2.DeleteNodeRequest(name=row["name"]), timeout=10.0)


def _command_line(pid: str) -> bytes:
    try:
        return Path("/proc", pid, "cmdline").read_bytes()
    except OSError:  # it has just ended
        return b""


def _exists(name: str) -> Callable[[ObservedRun], bool]:
    return lambda observed: bool(observed.files(name))


def _step(number: int) -> Callable[[ObservedRun], bool]:
    return lambda observed: latest_step(observed.cloud.cloud.config.state_dir / "vm") >= number


_PHASES: dict[str, Callable[[ObservedRun], bool]] = {
    "before create": lambda observed: True,
    "creating": lambda observed: True,
    "waiting": lambda observed: observed.node("CREATING") is not None,
    "booting": lambda observed: observed.node("READY") is not None,
    "shipping": lambda observed: bool(observed.files("runner.py")),
    "starting": _exists(protocol.PID_FILE),
    "training": _step(5),
    "checkpointing": _step(10),
    "trained": _step(STEPS),
    "copying": _exists(protocol.EXIT_FILE),
    "deleting": lambda observed: observed.node("DELETING") is not None,
}
