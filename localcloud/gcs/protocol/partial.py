# SPDX-License-Identifier: Apache-2.0
"""Partial responses: the parameter ``fields`` names the parts of an answer that are sent.

https://cloud.google.com/storage/docs/json_api#partial-response
"""

from __future__ import annotations

import re

_ONE = re.compile(r"(\w+)(?:\(([\w,]+)\))?(?:,|$)")

Selection = dict[str, frozenset[str]]
"""Fields of the answer, each with the fields of its members; none named: all of them."""


def selection(fields: str) -> Selection | None:
    """Read the parameter; None sends everything, as do the deeper forms that no client here uses.

    :param fields: such as ``items(name,size),nextPageToken``.
    """
    found: Selection = {}
    position = 0
    while position < len(fields):
        one = _ONE.match(fields, position)
        if one is None:
            return None
        found[one[1]] = frozenset((one[2] or "").split(",")) - {""}
        position = one.end()
    return found or None
