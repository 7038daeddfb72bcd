# SPDX-License-Identifier: Apache-2.0
"""Reports a script's progress and result: ``progress.json`` and ``result.json``. Standard library only."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trc.contract import Contract


def write_atomically(path: Path, data: bytes, durable: bool = True) -> None:
    """Replace a file in one step, so that no reader ever sees half of it; flush it to the disk if ``durable``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    os.replace(temporary, path)


def write_json(path: Path, document: Mapping[str, Any], durable: bool = True) -> None:
    """Write one JSON object atomically. NaN and infinity are refused: they are not JSON."""
    write_atomically(path, (json.dumps(document, indent=2, allow_nan=False) + "\n").encode(), durable)


class Reporter:
    """Writes ``progress.json`` and ``result.json`` into the output directory.

    :param contract: whose attempt is reported.
    :param now: Unix time, seconds.
    """

    def __init__(self, contract: Contract, now: Callable[[], float] = time.time) -> None:
        self._contract = contract
        self._now = now
        self._progress: dict[str, Any] = {"schema_version": 1, "attempt": contract.attempt, "pid": os.getpid()}

    def progress(self, state: str, **values: Any) -> None:
        """Report the progress; values given earlier stay.

        :param state: importing, initialising, compiling, training, saving, exporting, stopping or finished.
        :param values: step, total_steps, steps_per_second, eta_seconds, last_durable_step and whatever helps.
        """
        self._progress.update(values, state=state, time=round(self._now(), 3))
        write_json(self._contract.output_dir / "progress.json", self._progress, durable=False)

    def result(self, status: str, exit_code: int, **values: Any) -> None:
        """Report the end of the attempt. It is the last file written: once it is there, the others are complete."""
        document = {"schema_version": 1, "status": status, "exit_code": exit_code, "attempt": self._contract.attempt}
        write_json(self._contract.output_dir / "result.json", {**document, "time": round(self._now(), 3), **values})
