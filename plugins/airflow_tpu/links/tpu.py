"""Button to the TPU's page in Google's console."""

from __future__ import annotations

from airflow_tpu.links.base import StoredLink


class CloudTPUNodeLink(StoredLink):
    """The node's page."""

    name = "TPU in Google Cloud"
    key = "tpu_node_link"
    form = "https://console.cloud.google.com/compute/tpus/details/{zone}/{node_id}?project={project_id}"
