"""The TPU that this machine belongs to: how it is given back when nobody else will do it."""

from __future__ import annotations

import os
import subprocess
import time
from typing import Callable

from gcs.requests import Failure, Service

_GOOGLE = "https://tpu.googleapis.com"
# The variable of gcloud itself: https://cloud.google.com/sdk/gcloud/reference/topic/configurations
_ENDPOINT = "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU"
_SHUTDOWN = ("shutdown", "-h", "now")
_SHUTDOWN_SECS = 60.0


def endpoint() -> str:
    """Base URL of the Cloud TPU API.

    :raises ValueError: if the environment names none.
    """
    url = (os.environ.get(_ENDPOINT) or _GOOGLE).rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise ValueError("%s is %r: expected http:// or https://" % (_ENDPOINT, url))
    return url


def delete(name: str, pause: Callable[[float], object] = time.sleep) -> None:
    """Ask Cloud TPU to delete a node, or a queued resource with its nodes, in the name of this machine's account.

    :param name: full name of the resource; its nodes go with a queued resource only by force, and first.
    :param pause: waits so many seconds between two tries.
    :raises Failure: it was refused, or nobody answered, or there is no account to ask with.
    :raises ValueError: if the environment names no endpoint.
    """
    base = endpoint()
    service = Service(base, local=base.startswith("http://"), pause=pause)
    force = "?force=true" if "/queuedResources/" in name else ""
    try:
        service.request("DELETE", "%s/v2/%s%s" % (base, name, force))
    except Failure as error:
        if error.status != 404:  # gone already, as it should be
            raise


def shut_down() -> str:
    """Switch this machine off; returns why that did not work, empty if it did.

    A node that is switched off costs nothing more, but holds its name and its quota until somebody deletes it.
    """
    command = list(_SHUTDOWN) if os.geteuid() == 0 else ["sudo", "-n", *_SHUTDOWN]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SHUTDOWN_SECS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "%s: %s" % (" ".join(command), error)
    complaint = done.stderr.decode("utf-8", "replace").strip()
    return "" if done.returncode == 0 else "%s ended with %d: %s" % (" ".join(command), done.returncode, complaint)
