# SPDX-License-Identifier: Apache-2.0
"""Runs a script and interrupts it at an instant that no load on the machine can move.

Arguments: an :class:`Interruption` as JSON, the script, its arguments. The instant is a rename by which the script
publishes a file or a checkpoint: Python announces it to audit hooks before it happens
(https://docs.python.org/3/library/audit_events.html).
"""

from __future__ import annotations

import dataclasses
import json
import os
import runpy
import sys
import threading
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Interruption:
    """What happens to a script, and when.

    :param at: name of the file or directory that is about to be published.
    :param step: only if its ``step`` is at least this; for JSON files.
    :param state: only if its ``state`` is this, unless empty; for JSON files.
    :param write: a file to create first, empty for none.
    :param signal: number of a signal to send, 0 for none.
    :param hold: publish the file, and wait for ever, until somebody kills the process.
    """

    at: str
    step: int = 0
    state: str = ""
    write: str = ""
    signal: int = 0
    hold: bool = False

    def command(self, script: Path, *arguments: str, python: str = sys.executable) -> list[str]:
        """The command line that runs a script with this interruption."""
        return [python, __file__, json.dumps(dataclasses.asdict(self)), str(script), *arguments]

    def is_due(self, source: str, target: str) -> bool:
        """Tell whether this rename is the instant."""
        if Path(target).name != self.at:
            return False
        if not self.step and not self.state:
            return True
        document = json.loads(Path(source).read_bytes())
        return document.get("step", 0) >= self.step and self.state in ("", document.get("state"))

    def happen(self, source: str, target: str) -> None:
        """Create the file, send the signal, hold the process up."""
        if self.write:
            Path(self.write).write_text("written by a test\n")
        if self.signal:
            os.kill(os.getpid(), self.signal)
        if self.hold:
            os.replace(source, target)
            threading.Event().wait()


def main() -> None:
    """Run the script as if it had been called itself."""
    interruption, script = Interruption(**json.loads(sys.argv[1])), sys.argv[2]
    pending = [interruption]

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if event == "os.rename" and pending and interruption.is_due(str(arguments[0]), str(arguments[1])):
            pending.clear()
            interruption.happen(str(arguments[0]), str(arguments[1]))

    sys.addaudithook(watch)
    sys.argv[:] = sys.argv[2:]
    sys.path[0] = str(Path(script).parent)
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
