"""The smoke command: tries framework, device and bucket in a minute, before the script finds out after an hour.

It ends with 0; with 69 when the framework works and sees no TPU; with 77 when the machine's account lacks a right in
the bucket, with 74 when the bucket did not answer; with 1 when the framework does not work. Its line in the log says
why.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import Any, Dict, Optional, Tuple

import protocol

from gcs.objects import ObjectDamaged, Objects
from gcs.requests import RequestFailed, Storage
from gcs.source import SourceBytes
from gcs.upload import split_uri
from machine.run_dir import RunDir
from packages.log import say

LIMIT_SECS = 120.0
"""A cold import takes some 20 s, the TPU as long; tensorflow-tpu without a TPU never ends."""

_SUM = 128.0**3  # of the product of two matrices of ones: exact in bfloat16 too
_PROBES = {
    "tensorflow": """
import json, os
import tensorflow as tf
kind = None
if os.environ.get("TRC_ACCEL") == "tpu":
    tf.tpu.experimental.initialize_tpu_system(tf.distribute.cluster_resolver.TPUClusterResolver("local"))
    kind = "TPU"
devices = [one.name for one in tf.config.list_logical_devices(kind)]
with tf.device(devices[0] if devices else None):
    total = float(tf.reduce_sum(tf.matmul(tf.ones((128, 128)), tf.ones((128, 128)))))
print(json.dumps({"version": tf.__version__, "devices": devices, "sum": total}))
""",
    "jax": """
import json, os
import jax
import jax.numpy as jnp
devices = [str(one) for one in jax.devices() if os.environ.get("TRC_ACCEL") != "tpu" or one.platform == "tpu"]
total = float(jnp.sum(jnp.ones((128, 128)) @ jnp.ones((128, 128))))
print(json.dumps({"version": jax.__version__, "devices": devices, "sum": total}))
""",
    "torch": """
import json, os
import torch
device = "cpu"
if os.environ.get("TRC_ACCEL") == "tpu":
    import torch_xla.core.xla_model as xm
    device = xm.xla_device()
total = float((torch.ones(128, 128, device=device) @ torch.ones(128, 128, device=device)).sum().item())
print(json.dumps({"version": torch.__version__, "devices": [str(device)], "sum": total}))
""",
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
_CRASH = "it crashed; the framework's build and libtpu or the runtime version do not fit"


def smoke(run: RunDir) -> int:
    """Try what the job needs; return the exit status of the step."""
    job = run.read(protocol.JOB_FILE) or {}
    name, _, version = job["framework"].partition(" ")
    status, line = _try_framework(name, version)
    say("smoke: " + line)
    if status == protocol.EXIT_DONE and job.get("artifacts_uri"):
        status, line = _try_bucket(run, job["artifacts_uri"])
        say("smoke: " + line)
    return status


def _try_framework(name: str, version: str) -> Tuple[int, str]:
    try:
        done = subprocess.run(
            ["python3", "-c", _PROBES[name]], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            timeout=LIMIT_SECS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return protocol.EXIT_FAILED, "%s did not start in %d s; something else holds the TPU, or there is none" % (
            name,
            LIMIT_SECS,
        )
    if done.returncode != 0:
        return protocol.EXIT_FAILED, "%s does not work here: %s" % (name, _cause(done.returncode, done.stderr))
    return _judged(name, version, _last_object(done.stdout))


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


def _try_bucket(run: RunDir, uri: str) -> Tuple[int, str]:
    """Write an object, read it, delete it: each needs a right of its own."""
    doing, name = "write", "smoke-%d" % run.attempt
    try:
        bucket, prefix = split_uri(uri)
        objects = Objects(Storage(), bucket)
        whole = "%s/%s" % (prefix, name)
        known = objects.entries(whole).get(whole)
        stored = objects.upload(SourceBytes(name.encode("ascii")), whole, known, "text/plain")
        doing = "read"
        objects.read(whole, stored)
        doing = "delete"
        objects.delete(whole, stored.generation)
    except (RequestFailed, ObjectDamaged, OSError, ValueError) as error:
        refused = isinstance(error, RequestFailed) and error.status in (400, 401, 403)
        why = "the machine's service account may not %s objects below %s: %s" if refused else "cannot %s below %s: %s"
        return protocol.EXIT_NO_ACCESS if refused else protocol.EXIT_STORAGE, why % (doing, uri, error)
    return protocol.EXIT_DONE, "the bucket takes, gives and deletes objects below %s" % uri
