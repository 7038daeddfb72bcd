# SPDX-License-Identifier: Apache-2.0
"""The TPU that this machine belongs to: deletes it, or shuts the machine down."""

from __future__ import annotations

import os
import subprocess
import time
from typing import Callable

from gcs.requests import RequestFailed, Service

_GOOGLE = "https://tpu.googleapis.com"
# The variable of gcloud itself: https://cloud.google.com/sdk/gcloud/reference/topic/configurations
_ENDPOINT = "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU"
_SHUTDOWN = ("shutdown", "-h", "now")
_SHUTDOWN_SECS = 60.0


def endpoint() -> str:
    """Return the base URL of the Cloud TPU API.

    :raises ValueError: if the environment names something else than a URL.
    """
    url = (os.environ.get(_ENDPOINT) or _GOOGLE).rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise ValueError("%s is %r: expected http:// or https://" % (_ENDPOINT, url))
    return url


def delete(name: str, pause: Callable[[float], object] = time.sleep) -> None:
    """Ask Cloud TPU to delete a node, or a queued resource with its nodes, as this machine's service account.

    :param name: full name of the resource; a queued resource is deleted together with its nodes only by force.
    :param pause: waits so many seconds between two tries.
    :raises RequestFailed: if it was refused, or there was no answer, or the machine has no service account.
    :raises ValueError: if the environment names something else than a URL as endpoint.
    """
    base = endpoint()
    service = Service(base, local=base.startswith("http://"), pause=pause)
    force = "?force=true" if "/queuedResources/" in name else ""
    try:
        service.request("DELETE", "%s/v2/%s%s" % (base, name, force))
    except RequestFailed as error:
        if error.status != 404:  # gone already, as it should be
            raise


def shut_down() -> str:
    """Shut this machine down; return why that failed, empty if it did not.

    A node that is shut down costs nothing more, but keeps its name and its quota until it is deleted.
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
