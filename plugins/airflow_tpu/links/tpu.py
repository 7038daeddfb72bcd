# SPDX-License-Identifier: Apache-2.0
"""Button to the TPU's page in Google's console."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_tpu.links.base import StoredLink

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_tpu.core.tpu.resource_name import ResourceName


class CloudTPUNodeLink(StoredLink):
    """The node's page."""

    name = "TPU in Google Cloud"
    key = "tpu_node_link"
    form = "https://console.cloud.google.com/compute/tpus/details/{zone}/{node_id}?project={project_id}"

    @classmethod
    def persist_node(cls, context: Context, node: ResourceName) -> str:
        """Store the URL of a node; returns it."""
        return cls.persist(context, project_id=node.project, zone=node.zone, node_id=node.id)
