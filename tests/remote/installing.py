# SPDX-License-Identifier: Apache-2.0
"""Images, a package and an index, for tests of what a run installs."""

from __future__ import annotations

import ensurepip
import hashlib
import http.server
import io
import sys
import tarfile
import threading
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

from airflow_tpu import protocol
from airflow_tpu.core import json_form
from airflow_tpu.core.run.job import JobSpec
from airflow_tpu.core.run.result import RunResult
from tests.remote.vm import Machine

FOLDER = "reqs of mine"
USE = ("python3", "-c", "import toy; print(toy.NAME)")
ENSUREPIP = "The virtual environment was not created successfully because ensurepip is not available."
WHEEL = "toy-1.0-py3-none-any.whl"


def toy_wheel(folder: Path, needs: str = "") -> Path:
    """The package ``toy``, which needs another one perhaps."""
    folder.mkdir(parents=True, exist_ok=True)
    more = f"Requires-Dist: {needs}\n" if needs else ""
    with zipfile.ZipFile(folder / WHEEL, "w") as wheel:
        wheel.writestr("toy.py", "NAME = 'a toy'\n")
        wheel.writestr("toy-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n{more}")
        wheel.writestr("toy-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("toy-1.0.dist-info/RECORD", "")
    return folder / WHEEL


class Index:
    """A package index on this machine, with one package.

    :param wheel: of the package ``toy``.
    """

    def __init__(self, wheel: Path) -> None:
        self.requests: list[str] = []
        requests, content = self.requests, wheel.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        page = f'<a href="/{wheel.name}#sha256={digest}">{wheel.name}</a>'.encode()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self.answer()

            def do_GET(self) -> None:
                requests.append(self.path)
                self.wfile.write(self.answer())

            def answer(self) -> bytes:
                body = {"/simple/toy/": page, f"/{wheel.name}": content}.get(self.path)
                self.send_response(404 if body is None else 200)
                self.send_header("Content-Type", "text/html" if body is page else "application/octet-stream")
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                return body or b""

            def log_message(self, *arguments: Any) -> None:
                """Be silent."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/simple"

    @property
    def environment(self) -> dict[str, str]:
        """What leads pip and uv to this index, and to no other."""
        nothing = {"PIP_CONFIG_FILE": "/dev/null", "PIP_FIND_LINKS": "", "PIP_NO_CACHE_DIR": "1", "PIP_RETRIES": "0"}
        return {**nothing, "PIP_INDEX_URL": self.url, "UV_DEFAULT_INDEX": self.url, "UV_NO_CONFIG": "1"}

    def stop(self) -> None:
        """Answer no more; a second call does nothing."""
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Index:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.stop()


def pip_wheel() -> Path:
    """The pip that comes with Python, as a wheel; Debian keeps it in a folder of its own."""
    folders = (Path(ensurepip.__file__).parent / "_bundled", Path("/usr/share/python-wheels"))
    return next(wheel for folder in folders for wheel in folder.glob("pip-*.whl"))


def image(machine: Machine, *lacks: str, virtualenv: str = "venv") -> None:
    """Give a machine the python3 of an image.

    :param lacks: beginnings of arguments with which this python3 fails.
    :param virtualenv: module that answers when the module virtualenv is asked for.
    """
    refusals = "".join(f"  '{words} '*) echo '{ENSUREPIP}' >&2; exit 1;;\n" for words in lacks)
    rename = f'if [ "$2" = virtualenv ]; then shift 2; set -- -m {virtualenv} "$@"; fi\n'
    python = machine.home / "bin" / "python3"
    # The environment of the tests may have no pip of its own: that of the image is the one that ensurepip brings.
    pip = f'export PYTHONPATH="{pip_wheel()}${{PYTHONPATH:+:$PYTHONPATH}}"\n'
    python.write_text(f'#!/bin/sh\ncase "$* " in\n{refusals}esac\n{rename}{pip}exec {sys.executable} "$@"\n')
    python.chmod(0o755)


def install(
    machine: Machine,
    environment: Mapping[str, str],
    attempt: int = 1,
    files: Mapping[str, str | bytes] = MappingProxyType({}),
    login: Mapping[str, str] | None = None,
    **fields: Any,
) -> tuple[RunResult, str]:
    """Run a job that uses the package; return its result and its log.

    :param files: beside, or in place of, a requirements file that names the package.
    :param fields: of the job.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, text in {f"{FOLDER}/vm.txt": "toy\n", **files}.items():
            member = tarfile.TarInfo(name)
            content = text if isinstance(text, bytes) else text.encode()
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    job = JobSpec("run", attempt, USE, **{"environment": environment, "requirements": f"{FOLDER}/vm.txt", **fields})
    data = buffer.getvalue()
    described = {"length": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    start = protocol.encode(protocol.START, job=json_form.to_json(job), bundle=described)
    assert machine.ask("start", data=start + data, **(login or {}))["type"] == protocol.STARTED
    return RunResult.from_json(machine.result(job.ref)), machine.log(job.ref).decode()
