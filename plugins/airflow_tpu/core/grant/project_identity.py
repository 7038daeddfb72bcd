# SPDX-License-Identifier: Apache-2.0
"""Whether the credentials belong to the project that the grant was given to."""

from __future__ import annotations


def identity_warnings(project: str, key_project: object, quota_project: object) -> list[str]:
    """Warn of each project of the credentials that is not the grant's.

    A warning, not a refusal: Google allows a service account of one project to work in another, and what is billed goes
    by the project that the TPU is in, which is compared with the grant. A connection that names no project takes that
    of the credentials, so a wrong one is refused there.

    :param project: of the grant.
    :param key_project: project of the service account's key, None for credentials that have none (a user's,
        impersonated or anonymous ones).
    :param quota_project: project whose API quota the calls use, None if it is not set.
    """
    found = []
    if key_project and key_project != project:
        found.append(f"the service account's key is of project {key_project}, the grant was given to {project}")
    if quota_project and quota_project != project:
        found.append(
            f"API calls use the quota of project {quota_project}, where the Cloud TPU API must be enabled too; the "
            f"grant was given to {project}"
        )
    return found
