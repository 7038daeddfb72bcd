# SPDX-License-Identifier: Apache-2.0
"""The smoke command: tries framework, device and bucket in a minute, before the script finds out after an hour.

It ends with 0; with 69 when the framework sees no TPU, or waits for one in vain; with 77 when the machine's account
lacks a right in the bucket, with 74 when the bucket did not answer; with 1 when the framework does not work. Its line
in the log says why. What hangs is cut, part by part, so that a hang is named within half a minute.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from typing import IO, Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import protocol

from gcs.objects import ObjectDamaged, Objects
from gcs.requests import RequestFailed, Storage
from gcs.source import SourceBytes
from gcs.upload import split_uri
from machine import processes
from machine.run_dir import RunDir
from packages.log import say

_SUM = 128.0**3  # of the product of two matrices of ones: exact in bfloat16 too
# What a probe prints as it gets on; any other line of it is the library's.
_REACHED = "airflow-tpu-probe "
_PRELUDE = """
import json, os
def reached(part):
    print("airflow-tpu-probe " + part, flush=True)
"""
_IMPORT, _DEVICES, _PRODUCT = "import", "devices", "product"
_PROBES = {
    "tensorflow": """
import tensorflow as tf
reached("devices")
kind = None
if os.environ.get("TRC_ACCEL") == "tpu":
    tf.tpu.experimental.initialize_tpu_system(tf.distribute.cluster_resolver.TPUClusterResolver("local"))
    kind = "TPU"
devices = [one.name for one in tf.config.list_logical_devices(kind)]
reached("product")
with tf.device(devices[0] if devices else None):
    total = float(tf.reduce_sum(tf.matmul(tf.ones((128, 128)), tf.ones((128, 128)))))
print(json.dumps({"version": tf.__version__, "devices": devices, "sum": total}))
""",
    "jax": """
import jax
import jax.numpy as jnp
reached("devices")
devices = [str(one) for one in jax.devices() if os.environ.get("TRC_ACCEL") != "tpu" or one.platform == "tpu"]
reached("product")
total = float(jnp.sum(jnp.ones((128, 128)) @ jnp.ones((128, 128))))
print(json.dumps({"version": jax.__version__, "devices": devices, "sum": total}))
""",
    "torch": """
import torch
reached("devices")
device = "cpu"
if os.environ.get("TRC_ACCEL") == "tpu":
    import torch_xla.core.xla_model as xm
    device = xm.xla_device()
reached("product")
total = float((torch.ones(128, 128, device=device) @ torch.ones(128, 128, device=device)).sum().item())
print(json.dumps({"version": torch.__version__, "devices": [str(device)], "sum": total}))
""",
}
_LONGER = 4  # times: a machine with much to do, or a slow disk, takes minutes for an import
_LOOKS = 10  # in the limit
_WORK = 2  # effort of a process in a second; less of it waits
# What it means that a part of a probe does not end.
_HANGS = {
    _IMPORT: "was not imported in %d s: an imported module waits for something, or the disk is that slow",
    _DEVICES: "did not list its devices in %d s: something else holds the TPU, or there is none",
    _PRODUCT: "did not multiply two matrices in %d s: libtpu or the runtime version does not fit, or the TPU is ill",
}
# What libraries say, and what it means.
_CAUSES = (
    (
        "ConfigureDistributedTPU",
        "this TensorFlow was built without TPU; use that of an image, or tensorflow-tpu",
    ),
    ("No module named", "it is not installed in the environment of the run"),
    ("already in use", "another process holds the TPU"),
    ("gs://", "the framework cannot use Cloud Storage"),
)
_NOT_DONE = "cannot %s below %s: %s"
_CRASH = "it crashed; the framework's build and libtpu or the runtime version do not fit"


class ProbeEnd(NamedTuple):
    """How a probe ended.

    :param status: of its process, None if it was cut.
    :param part: what it had reached.
    """

    status: Optional[int]
    part: str
    stdout: bytes
    stderr: bytes


def smoke(run: RunDir) -> int:
    """Try what the job needs; return the exit status of the step."""
    job = run.read(protocol.JOB_FILE) or {}
    limit = float(job.get("smoke_secs") or protocol.SMOKE_SECS)
    name, _, version = job["framework"].partition(" ")
    status, line = _try_framework(name, version, limit)
    say("smoke: " + line)
    if status == protocol.EXIT_DONE and job.get("artifacts_uri"):
        status, line = BucketTrial(run, job["artifacts_uri"]).result(limit)
        say("smoke: " + line)
    return status


def _try_framework(name: str, version: str, limit: float) -> Tuple[int, str]:
    end = _probe(_PROBES[name], limit)
    if end.status is None:
        # Another TPU may be well; neither a slow disk nor a wrong package is mended by one.
        status = protocol.EXIT_NO_ACCELERATOR if end.part == _DEVICES else protocol.EXIT_FAILED
        return status, "%s %s" % (name, _HANGS[end.part] % limit)
    if end.status != 0:
        return protocol.EXIT_FAILED, "%s does not work here: %s" % (name, _cause(end.status, end.stderr))
    return _judged(name, version, _last_object(end.stdout))


def _probe(code: str, limit: float) -> ProbeEnd:
    """Run a probe, and cut it where one part of it takes longer than the limit.

    :param limit: seconds.
    """
    lines: "queue.Queue[bytes]" = queue.Queue()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            ["python3", "-c", _PRELUDE + code], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
        )
        threading.Thread(target=_read_lines, args=(process.stdout, lines), daemon=True).start()
        part, printed = _follow(lines, Patience(limit, lambda: processes.effort(process.pid)))
        status = _status(process, limit) if printed is not None else None
        if status is None:
            process.kill()
            process.wait()
        errors.seek(0)
        return ProbeEnd(status, part, b"".join(printed or []), errors.read())


def _status(process: "subprocess.Popen[bytes]", limit: float) -> Optional[int]:
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        return None


class Patience:
    """How long a part of a probe may take: the import longer, as long as it works; the others wait for the TPU.

    :param limit: seconds.
    :param effort: of the probe so far, see :func:`machine.processes.effort`.
    :param clock: seconds.
    """

    def __init__(self, limit: float, effort: Callable[[], int], clock: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._effort, self._clock = limit, effort, clock
        self.begin(_LONGER)

    def begin(self, longer: int = 1) -> None:
        """Begin a part.

        :param longer: how many times the limit a probe gets that works.
        """
        self._began, self._most = self._clock(), self._limit * longer
        self._look()

    def _look(self) -> None:
        self._looked, self._seen = self._clock(), self._effort()

    @property
    def pause(self) -> float:
        """Seconds until the next look."""
        return max(0.0, self._looked + self._limit / _LOOKS - self._clock())

    def is_over(self) -> bool:
        """Look whether the part gets no more time."""
        seen, looked = self._seen, self._looked
        self._look()
        passed, work = self._looked - self._began, (self._looked - looked) * _WORK
        return passed >= self._limit and (passed >= self._most or self._seen - seen < work)


def _read_lines(stream: IO[bytes], lines: "queue.Queue[bytes]") -> None:
    for line in stream:
        lines.put(line)
    lines.put(b"")


def _follow(lines: "queue.Queue[bytes]", patience: Patience) -> Tuple[str, Optional[List[bytes]]]:
    """Return the last part that a probe reached, and what it printed, None if that part did not end."""
    part, printed = _IMPORT, []  # type: str, List[bytes]
    while True:
        line = _next_line(lines, patience.pause)
        if line == b"":
            return part, printed
        if patience.pause == 0 and patience.is_over():
            return part, None
        if line is None:
            continue
        text = line.decode("utf-8", "replace").strip()
        if text.startswith(_REACHED):
            part = text[len(_REACHED) :]
            patience.begin()
        printed.append(line)


def _next_line(lines: "queue.Queue[bytes]", seconds: float) -> Optional[bytes]:
    try:
        return lines.get(timeout=seconds)
    except queue.Empty:
        return None


def _judged(name: str, version: str, found: Optional[Dict[str, Any]]) -> Tuple[int, str]:
    if found is None or found.get("sum") != _SUM:
        return protocol.EXIT_FAILED, "%s computes wrong: %s instead of %s" % (name, (found or {}).get("sum"), _SUM)
    here = "%s %s" % (name, found["version"])
    if version and not (str(found["version"]) + ".").startswith(version + "."):
        wrong = "is here and %s was asked for: the requirements, or the image, brought another one" % version
        return protocol.EXIT_FAILED, "%s %s" % (here, wrong)
    if not found["devices"]:
        return protocol.EXIT_NO_ACCELERATOR, "%s works and sees no TPU" % here
    shown = ", ".join(found["devices"][:4]) + (", ..." if len(found["devices"]) > 4 else "")
    what = "" if os.environ.get("TRC_ACCEL") == "tpu" else "; no TPU was looked for, as TRC_ACCEL says on this machine"
    return protocol.EXIT_DONE, "%s computes on %d device(s): %s%s" % (here, len(found["devices"]), shown, what)


def _cause(status: int, stderr: bytes) -> str:
    if status < 0 or status in (128 + signal.SIGABRT, 128 + signal.SIGSEGV):
        return "%s (status %d)" % (_CRASH, status)
    text = stderr.decode("utf-8", "replace")
    meaning = next((" (%s)" % meaning for words, meaning in _CAUSES if words in text), "")
    return (text.strip().rpartition("\n")[2] or "status %d" % status)[:500] + meaning


def _last_object(stdout: bytes) -> Optional[Dict[str, Any]]:
    try:
        found = json.loads(stdout.decode("utf-8", "replace").strip().rpartition("\n")[2])
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


class BucketTrial:
    """Write an object, read it, delete it: each needs a right of its own.

    :param run: the attempt, which names the object.
    :param uri: ``gs://bucket/prefix``.
    """

    def __init__(self, run: RunDir, uri: str) -> None:
        self._name = "smoke-%d" % run.attempt
        self._uri = uri
        self._doing = "write"
        self._found: Optional[Tuple[int, str]] = None

    def result(self, limit: float) -> Tuple[int, str]:
        """Return exit status and line of the log; a bucket that is silent for longer than the limit is no answer.

        :param limit: seconds.
        """
        thread = threading.Thread(target=self._try, daemon=True)  # Cloud Storage's own patience is minutes
        thread.start()
        thread.join(limit)
        silent = _NOT_DONE % (self._doing, self._uri, "no answer in %d s" % limit)
        return self._found or (protocol.EXIT_STORAGE, silent)

    def _try(self) -> None:
        try:
            self._use()
            line = "the bucket takes, gives and deletes objects below %s" % self._uri
            self._found = protocol.EXIT_DONE, line
        except (RequestFailed, ObjectDamaged, OSError, ValueError) as error:
            refused = isinstance(error, RequestFailed) and error.status in (400, 401, 403)
            why = "the machine's service account may not %s objects below %s: %s" if refused else _NOT_DONE
            status = protocol.EXIT_NO_ACCESS if refused else protocol.EXIT_STORAGE
            self._found = status, why % (self._doing, self._uri, error)

    def _use(self) -> None:
        bucket, prefix = split_uri(self._uri)
        objects = Objects(Storage(), bucket)
        whole, content = "%s/%s" % (prefix, self._name), self._name.encode("ascii")
        known = objects.entries(whole).get(whole)
        stored = objects.upload(SourceBytes(content), whole, known, "text/plain")
        self._doing = "read"
        objects.read(whole, stored)
        self._doing = "delete"
        objects.delete(whole, stored.generation)
