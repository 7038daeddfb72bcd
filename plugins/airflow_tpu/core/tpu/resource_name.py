# SPDX-License-Identifier: Apache-2.0
"""Full name of a node or queued resource: text on the wire and in XCom, a value everywhere between."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, replace
from typing import ClassVar


class ResourceKind(enum.StrEnum):
    """Collection that a resource is in."""

    NODE = "nodes"
    QUEUED = "queuedResources"


_NAME = re.compile(r"projects/([^/]+)/locations/([^/]+)/(nodes|queuedResources)/([^/]+)")


@dataclass(frozen=True, order=True)
class ResourceName:
    """``projects/PROJECT/locations/ZONE/KIND/ID``; ours give a node and its queued resource the same id.

    :param project: Google Cloud project, by id.
    :param zone: zone, such as ``us-central1-f``.
    :param kind: node or queued resource.
    :param id: short name.
    """

    project: str
    zone: str
    kind: ResourceKind
    id: str
    text_in_json: ClassVar[bool] = True  # see core/json_form.py, which a parse of the form does not load

    @classmethod
    def parse(cls, text: str) -> ResourceName:
        """Read a full name.

        :raises ValueError: it is no name of a node or queued resource.
        """
        found = _NAME.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is no full name of a node or queued resource")
        return cls(found[1], found[2], ResourceKind(found[3]), found[4])

    @property
    def parent(self) -> str:
        """Name of the zone."""
        return location(self.project, self.zone)

    @property
    def node(self) -> ResourceName:
        """The node of the same id."""
        return replace(self, kind=ResourceKind.NODE)

    @property
    def queued(self) -> ResourceName:
        """The queued resource of the same id."""
        return replace(self, kind=ResourceKind.QUEUED)

    def __str__(self) -> str:
        return f"{self.parent}/{self.kind}/{self.id}"


def node_name(project: str, zone: str, node_id: str) -> ResourceName:
    """Full name of a node."""
    return ResourceName(project, zone, ResourceKind.NODE, node_id)


def location(project: str, zone: str) -> str:
    """Full name of a zone, as every create and list wants it; ``-`` stands for every zone."""
    return f"projects/{project}/locations/{zone}"


def zone_of(location: str) -> str:
    """Zone that a list call names as unreachable, by its name alone or by its full name."""
    return location.rpartition("/")[2]
