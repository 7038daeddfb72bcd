"""A TPU that is on its way, by its names."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from airflow_tpu.core.tpu.spec import TPUSpec

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class Target:
    """A TPU that is on its way; plain text, so that a trigger can carry it.

    :param node: full name of the node.
    :param queued: full name of the queued resource, empty for a direct node.
    :param operation: name of the create operation, empty when it was started by somebody else.
    """

    node: str
    queued: str = ""
    operation: str = ""

    @property
    def node_id(self) -> str:
        """Short name of the node."""
        return self.node.rsplit("/", 1)[-1]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)


def target_of(spec: TPUSpec, node_id: str, operation: str = "") -> Target:
    """The target that a spec and a name describe."""
    queued = f"{spec.parent}/queuedResources/{node_id}" if spec.queued else ""
    return Target(f"{spec.parent}/nodes/{node_id}", queued, operation)
