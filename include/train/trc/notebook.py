# SPDX-License-Identifier: Apache-2.0
"""Run a notebook as a script: ``python3 -m trc.notebook train.ipynb --lr 1e-3``.

Its cells print to the log as they run, and the executed notebook is written to the output directory after each cell, so
that it is there when a cell fails or the TPU is taken away. Arguments become variables, in a cell behind the one with
the tag ``parameters``, as papermill has it (https://papermill.readthedocs.io/en/latest/usage-parameterize.html).
Needs ``nbclient`` and ``ipykernel``.
"""

from __future__ import annotations

import ast
import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

EXIT_FAILED = 1
EXIT_TERMINATED = 128 + signal.SIGTERM  # as a shell says it: what the script contract takes for an interrupted run
KERNEL = "python3"
"""Kernel of the environment that this runs in, whatever the machine called it on which the notebook was written."""

_TAG = "parameters"
_INJECTED = "injected-parameters"


def parameters(words: list[str]) -> dict[str, object]:
    """Read ``--lr 1e-3``, ``--lr=1e-3``, ``-p lr 1e-3`` and ``--flag``; what is a Python literal becomes one.

    :raises ValueError: a word belongs to no name, or a name is no variable.
    """
    found: dict[str, object] = {}
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if word in ("-p", "-r", "--parameters", "--parameters_raw"):
            if len(waiting) < 2:
                raise ValueError(f"{word} needs a name and a value")
            name, text = waiting.pop(0), waiting.pop(0)
        elif word.startswith("--"):
            name, equals, text = word[2:].partition("=")
            if not equals:
                text = waiting.pop(0) if waiting and not waiting[0].startswith("--") else "True"
        else:
            raise ValueError(f"{word!r} is the value of no parameter: give --name value")
        name = name.replace("-", "_")
        if not name.isidentifier():
            raise ValueError(f"{name!r} is no name of a variable")
        found[name] = text if word in ("-r", "--parameters_raw") else literal(text)
    return found


def literal(text: str) -> object:
    """Return the value that a text means in Python, else the text."""
    try:
        return ast.literal_eval({"true": "True", "false": "False", "null": "None"}.get(text, text))
    except (SyntaxError, ValueError):
        return text


def with_parameters(notebook: Any, values: dict[str, object]) -> None:
    """Put a cell with the values behind the one that has their defaults, or at the beginning."""
    if not values:
        return
    from nbformat.v4 import new_code_cell

    lines = "\n".join(f"{name} = {value!r}" for name, value in values.items())
    tagged = [number for number, cell in enumerate(notebook.cells) if _TAG in cell.metadata.get("tags", [])]
    notebook.cells.insert(tagged[0] + 1 if tagged else 0, new_code_cell(lines, metadata={"tags": [_INJECTED]}))


def main(words: list[str]) -> int:
    """Execute the notebook that the first word names; return the exit status."""
    import nbformat
    from nbclient.exceptions import CellExecutionError, DeadKernelError

    source = Path(words[0])
    notebook = nbformat.read(str(source), as_version=4)
    with_parameters(notebook, parameters(words[1:]))
    target = Path(os.environ.get("TRC_OUTPUT_DIR", ".")) / source.name
    client = _client(notebook, target)
    try:
        client.execute()
    except CellExecutionError as error:
        return EXIT_TERMINATED if client.stopped else _status(error)
    except DeadKernelError:
        if not client.stopped:
            print(
                f"the kernel of {source} has died: out of memory, or a crash below Python", file=sys.stderr, flush=True
            )
        return EXIT_TERMINATED if client.stopped else EXIT_FAILED
    finally:
        client.save()
    return 0


def _client(notebook: Any, target: Path) -> Any:
    """A client that prints what the cells print, and saves the notebook after each of them."""

    def listen(notebook: Any) -> None:
        # In place of the client's own answer to the signal, which drops what has been executed.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, client.interrupt)

    def executed(cell: Any, cell_index: int, execute_reply: Any) -> None:
        client.save()

    client = _client_class(target)(
        notebook,
        timeout=None,
        kernel_name=KERNEL,
        resources={"metadata": {"path": os.getcwd()}},
        on_notebook_start=listen,
        on_cell_executed=executed,
    )
    return client


def _client_class(target: Path) -> Any:
    """The class of the client; what it is made of is imported where it runs."""
    import nbformat
    from nbclient import NotebookClient

    class Client(NotebookClient):  # type: ignore[misc]  # not installed where this is checked
        """Executes cells in the working directory."""

        stopped = False

        def save(self) -> None:
            """Write the notebook as far as it has come, in one step."""
            beside = target.with_name(f".{target.name}.tmp")
            nbformat.write(self.nb, str(beside))
            os.replace(beside, target)

        def interrupt(self) -> None:
            """Stop the cell that runs: the script contract asks for it by SIGTERM."""
            self.stopped = True
            self.interrupting = asyncio.ensure_future(self.km.interrupt_kernel())

        def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
            """Show a message of the kernel."""
            _show(msg["msg_type"], msg["content"])
            return super().process_message(msg, cell, cell_index)

    return Client


def _show(kind: str, content: Any) -> None:
    if kind == "stream":
        print(content["text"], end="", flush=True)
    elif kind == "error":
        print("\n".join(content["traceback"]), file=sys.stderr, flush=True)
    elif kind in ("execute_result", "display_data"):
        print(content["data"].get("text/plain", ""), flush=True)


def _status(error: Any) -> int:
    """Return the exit status that a failed cell stands for: ``sys.exit(75)`` in a cell is an exit with 75."""
    if error.ename == "SystemExit":
        value = literal(error.evalue or "0")
        return value if isinstance(value, int) else EXIT_FAILED
    return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
