# SPDX-License-Identifier: Apache-2.0
"""Button to the folder of a run's artifacts in Google's console."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_tpu.links.base import StoredLink

if TYPE_CHECKING:
    from airflow.sdk import Context


class CloudTPUArtifactsLink(StoredLink):
    """The bucket page at the run's prefix."""

    name = "Artifacts in Cloud Storage"
    key = "tpu_artifacts_link"
    form = "https://console.cloud.google.com/storage/browser/{path}?project={project_id}"

    @classmethod
    def persist_uri(cls, context: Context, uri: str, project_id: str) -> str:
        """Store the URL of a ``gs://`` folder; returns it."""
        return cls.persist(context, path=uri.removeprefix("gs://"), project_id=project_id)
