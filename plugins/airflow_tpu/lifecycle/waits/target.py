# SPDX-License-Identifier: Apache-2.0
"""A TPU that is on its way, by its names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_tpu.core.tpu.resource_name import ResourceName

if TYPE_CHECKING:
    from airflow_tpu.core.tpu.spec import TPUSpec


@dataclass(frozen=True)
class Target:
    """A TPU that is on its way.

    :param node: its node.
    :param is_queued: a queued resource of the same id asks for it.
    :param operation: name of the create operation, empty when another process started it.
    :param host_keys: SSH host key of each worker by an earlier login, empty before the first.
    """

    node: ResourceName
    is_queued: bool = False
    operation: str = ""
    host_keys: tuple[str, ...] = ()

    @property
    def node_id(self) -> str:
        """Short name of the node."""
        return self.node.id

    @property
    def queued(self) -> ResourceName:
        """The queued resource, if it is asked for by one."""
        return self.node.queued


def target_of(spec: TPUSpec, node_id: str, operation: str = "") -> Target:
    """The target that a spec and an id describe."""
    return Target(spec.node(node_id), spec.queued, operation)
