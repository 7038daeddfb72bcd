# SPDX-License-Identifier: Apache-2.0
"""Resource names, ids and labels: their forms, and which ones Google refuses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from localcloud.rules import errors

_PART = r"[^/]+"
_RESOURCE = re.compile(rf"projects/({_PART})/locations/({_PART})(?:/({_PART})/({_PART}))?")
_ID = re.compile(r"[A-Za-z0-9_.~+%-]{1,63}")
_LABELS_MAX = 64


@dataclass(frozen=True)
class ResourceName:
    """``projects/P/locations/Z[/COLLECTION/ID]`` taken apart; ``collection`` and ``id`` are empty for a location."""

    project: str
    zone: str
    collection: str = ""
    id: str = ""

    @classmethod
    def parse(cls, text: str, collection: str = "") -> ResourceName:
        """Take a name apart.

        :param collection: what it must be a name of, for example ``nodes``; empty for a location.
        :raises CloudError: INVALID_ARGUMENT if it has another form.
        """
        match = _RESOURCE.fullmatch(text)
        if match is None or (match[3] or "") != collection:
            shape = f"projects/*/locations/*{f'/{collection}/*' if collection else ''}"
            raise errors.invalid(f"Cloud TPU received a bad request. The name {text!r} does not have the form {shape}")
        return cls(match[1], match[2], match[3] or "", match[4] or "")

    @property
    def full(self) -> str:
        """The name in full, with the project's id even where it was given by its number."""
        return self.child(self.collection, self.id)

    def child(self, collection: str, identifier: str) -> str:
        """Return the full name of a resource in this location."""
        return f"projects/{self.project}/locations/{self.zone}/{collection}/{identifier}"


def check_id(identifier: str, field: str) -> None:
    """Refuse an id the API does not take.

    :raises CloudError: INVALID_ARGUMENT.
    """
    if not _ID.fullmatch(identifier):
        raise errors.invalid(
            f'Cloud TPU received a bad request. The field "{field}" cannot be "{identifier}": '
            f"it must match {_ID.pattern}"
        )


def check_labels(labels: Mapping[str, str]) -> None:
    """Refuse labels that break Google Cloud's rules (https://cloud.google.com/resource-manager/docs/labels-overview).

    :raises CloudError: INVALID_ARGUMENT.
    """
    if len(labels) > _LABELS_MAX:
        raise errors.invalid(f"Cloud TPU received a bad request. More than {_LABELS_MAX} labels: {len(labels)}")
    for key, value in labels.items():
        if not key or not (key[0].isalpha() and _is_label_text(key)):
            raise errors.invalid(f'Cloud TPU received a bad request. The label key "{key}" is not valid')
        if not _is_label_text(value):
            raise errors.invalid(f'Cloud TPU received a bad request. The label value "{value}" of "{key}" is not valid')


def _is_label_text(text: str) -> bool:
    return len(text) <= 63 and all(char in "_-" or (char.isalnum() and not char.isupper()) for char in text)
