"""Button to the folder of a run's artifacts in Google's console."""

from __future__ import annotations

from airflow_tpu.links.base import StoredLink


class CloudTPUArtifactsLink(StoredLink):
    """The bucket page at the run's prefix."""

    name = "Artifacts in Cloud Storage"
    key = "tpu_artifacts_link"
    form = "https://console.cloud.google.com/storage/browser/{path}?project={project_id}"
