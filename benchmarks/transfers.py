# SPDX-License-Identifier: Apache-2.0
"""Measure upload and download of a run's files by the runner, beside Google's transfer manager, on one local cloud.

Run ``python benchmarks/transfers.py [--files 10000] [--bytes 1000] [--latency 0.03] [--restore]``. The bucket is in a
process of its own and answers each request so many seconds later; both sides get empty places and equal files.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "plugins"), str(ROOT)]

from google.cloud.storage import Bucket, transfer_manager  # noqa: E402 - the packages are found through the line above

from localcloud.clock import RealClock  # noqa: E402
from localcloud.faults import FaultRegistry  # noqa: E402
from localcloud.gcs import GCSServer  # noqa: E402
from localcloud.testing import storage_bucket  # noqa: E402
from tests.remote.checkpoint_server import PREFIX, URI  # noqa: E402
from tests.remote.vm import RUN, Machine, named  # noqa: E402

BUCKET = "checkpoints"
_ENDLESS = 10**9  # times that a fault strikes
_WORKERS = ((transfer_manager.THREAD, 8), (transfer_manager.THREAD, 32), (transfer_manager.PROCESS, 8))

_FETCH = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[1:3]
from gcs.objects import Fetch, Objects
from gcs.requests import Storage
bucket = Objects(Storage(), sys.argv[3])
found = bucket.entries(sys.argv[4])
bucket.fetch([Fetch(name, stored, Path(sys.argv[5], name)) for name, stored in found.items()])
"""


async def serve(root: Path, latency: float) -> None:
    """Serve one bucket until standard input ends; print its address, and for each line of input its requests so far."""
    faults = FaultRegistry()
    if latency:
        params = {"action": "delay", "seconds": latency}
        faults.add({"point": "gcs.request", "match": {}, "times": _ENDLESS, "after": 0, "params": params})
    server = GCSServer(root, RealClock(), faults)
    server.create_bucket(BUCKET)
    print(await server.start(), flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(sum(server.stats()["requests"].values()), flush=True)
    await server.close()


class Server:
    """An empty bucket in a process of its own, a context manager.

    :param root: where it keeps its objects.
    :param latency: seconds before each answer.
    """

    def __init__(self, root: Path, latency: float) -> None:
        command = [sys.executable, __file__, "--serve", str(root), "--latency", str(latency)]
        self._root = root
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Server:
        self.url = self._line()
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate()
        shutil.rmtree(self._root)

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def requests(self) -> int:
        """Return how many requests it has answered."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return int(self._line())


def fill(folder: Path, files: int, size: int) -> None:
    """Write so many files, no two of them equal."""
    block = os.urandom(min(size, 2**20))
    for number in range(files):
        path = folder / f"{number % 100:02d}" / f"{number:06d}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.write(b"%16d" % number)
            for _ in range(0, size - 16, len(block)):
                file.write(block[: size - file.tell()])


def cpu_secs() -> float:
    """Return the CPU seconds of this process and of those that it has waited for."""
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in found)


class Machines:
    """A machine with a run whose output is to be pushed.

    :param folder: for its home.
    """

    def __init__(self, folder: Path) -> None:
        self.machine = Machine(folder / "home", sys.executable)
        self.machine.run("true")
        self.output = self.machine.attempt() / "output"

    def push(self, url: str) -> None:
        """Push by the runner."""
        command = self.machine.command("push", *named(RUN), "--to", URI)
        environment = self.machine.environment(STORAGE_EMULATOR_HOST=url)
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)

    def fetch(self, url: str, target: Path) -> None:
        """Download everything as a restore does."""
        paths = [str(ROOT / "include/remote"), str(ROOT / "plugins/airflow_tpu")]
        command = [sys.executable, "-c", _FETCH, *paths, BUCKET, PREFIX + "/output/", str(target)]
        subprocess.run(command, env={**os.environ, "STORAGE_EMULATOR_HOST": url}, check=True)


def peer_push(bucket: Bucket, output: Path, kind: str, workers: int) -> None:
    """Push by Google's transfer manager, over nothing that is there."""
    names = sorted(str(path.relative_to(output)) for path in output.rglob("*") if path.is_file())
    transfer_manager.upload_many_from_filenames(
        bucket,
        names,
        source_directory=str(output),
        blob_name_prefix=PREFIX + "/output/",
        worker_type=kind,
        max_workers=workers,
        upload_kwargs={"checksum": "md5", "if_generation_match": 0},
        raise_exception=True,
    )


def peer_fetch(bucket: Bucket, target: Path, kind: str, workers: int) -> None:
    """Download by Google's transfer manager: a large file in pieces, many files at once."""
    blobs = list(bucket.list_blobs(prefix=PREFIX + "/output/"))
    options: dict[str, Any] = {"worker_type": kind, "max_workers": workers}
    if len(blobs) < workers:
        for number, blob in enumerate(blobs):
            transfer_manager.download_chunks_concurrently(blob, str(target / f"{number}"), **options)
        return
    names = [blob.name for blob in blobs]
    transfer_manager.download_many_to_path(
        bucket, names, destination_directory=str(target), raise_exception=True, **options
    )


def timed(name: str, server: Server, work: Callable[[], Any]) -> float:
    """Do it; print seconds, CPU seconds without the server's, and requests; return the seconds."""
    before, begin, used = server.requests(), time.perf_counter(), cpu_secs()
    work()
    seconds = time.perf_counter() - begin
    used, sent = cpu_secs() - used, server.requests() - before
    print(f"{name:<26} {seconds:7.1f} s {used:6.1f} CPU-s {sent:6d} requests", flush=True)
    return seconds


def pushes(given: argparse.Namespace, folder: Path, machines: Machines) -> list[float]:
    """Push with each into an empty bucket; ours comes first."""
    with Server(folder / "gcs", given.latency) as server:
        results = [timed("push, runner", server, lambda: machines.push(server.url))]
    for kind, workers in _WORKERS:
        with Server(folder / "gcs", given.latency) as server:
            bucket = storage_bucket(server.url, BUCKET)
            work = functools.partial(peer_push, bucket, machines.output, kind, workers)
            results.append(timed(f"push, {workers} {kind}s", server, work))
    return results


def restores(given: argparse.Namespace, folder: Path, machines: Machines) -> list[float]:
    """Push once, then download with each; ours comes first."""
    target = folder / "restored"
    with Server(folder / "gcs", given.latency) as server:
        machines.push(server.url)
        bucket = storage_bucket(server.url, BUCKET)
        results = [timed("restore, runner", server, lambda: machines.fetch(server.url, target))]
        shutil.rmtree(target)
        for kind, workers in _WORKERS:
            target.mkdir()
            work = functools.partial(peer_fetch, bucket, target, kind, workers)
            results.append(timed(f"restore, {workers} {kind}s", server, work))
            shutil.rmtree(target)
    return results


def main() -> int:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--bytes", type=int, default=1000, help="of each file")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--restore", action="store_true", help="download instead of upload")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        asyncio.run(serve(given.serve, given.latency))
        return 0
    with tempfile.TemporaryDirectory() as name:
        machines = Machines(Path(name))
        fill(machines.output, given.files, given.bytes)
        ours, *others = (restores if given.restore else pushes)(given, Path(name), machines)
        machines.machine.kill_all()
    print(f"the best alternative takes {min(others) / ours:.2f} times as long as the runner", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
