# SPDX-License-Identifier: Apache-2.0
"""Try the rights that a run will need, writing too: a role that is missing costs no TPU then.

What cannot be tried from here: whether the account of the TPU VM may write to the bucket, and whether the account of
Airflow may use it (``iam.serviceAccountUser``); the create and the first upload say so.
"""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING

from airflow_tpu.errors import AccessDenied

if TYPE_CHECKING:
    from airflow_tpu.lifecycle.run_context import RunContext

log = logging.getLogger(__name__)

PERMISSIONS = (
    "tpu.nodes.create",
    "tpu.nodes.delete",
    "tpu.nodes.get",
    "tpu.nodes.list",
    "tpu.nodes.update",
    "tpu.operations.get",
)
"""What a run needs on the project; docs/google.md says what for."""


def check_rights(run: RunContext) -> None:
    """Write, read, list and delete an object wherever this run will, and ask which rights the project grants.

    :param run: what was asked for.
    :raises AccessDenied: a right is missing; the message names it, and the role that gives it.
    """
    own, artifacts = (root.rstrip("/") for root in (run.stores.ledger.root, run.conf.artifacts_uri))
    _try_bucket(run, own)
    if not f"{artifacts}/".startswith(f"{own}/"):  # a role holds for everything below what its condition names
        _try_bucket(run, artifacts)
    _ask_project(run)


def _try_bucket(run: RunContext, root: str) -> None:
    storage, uri = run.clients.storage, f"{root}/rights/{run.key.name}-{uuid.uuid4().hex[:8]}.json"
    storage.write_json(uri, {"run": run.key.name})
    try:
        storage.read_json(uri)
        storage.listing(uri)
    finally:
        storage.remove(uri)


def _ask_project(run: RunContext) -> None:
    project = run.request.spec.project_id
    missing = run.clients.tpu.missing_permissions(PERMISSIONS)
    if missing is None:
        log.info("the rights on %s could not be asked for; the first create will show them", project)
    elif missing:
        raise AccessDenied(
            f"The account of the google_cloud_platform connection lacks {', '.join(missing)} on the project {project}. "
            "Give it the role TPU Admin (roles/tpu.admin), or the custom role in docs/google.md, then clear the task."
        )
