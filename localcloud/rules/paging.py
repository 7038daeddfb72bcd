# SPDX-License-Identifier: Apache-2.0
"""Pages of a listing: an opaque token that names the last item, stable when items come and go between two calls."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import TypeVar

from localcloud.rules import errors

T = TypeVar("T")
_DEFAULT = 500
_MAXIMUM = 1000


def page(items: Sequence[T], key: Callable[[T], str], size: int, token: str) -> tuple[list[T], str]:
    """Return one page of ``items`` in the order of ``key``, and the token of the next page or "".

    :raises CloudError: INVALID_ARGUMENT for a negative size or a malformed token.
    """
    if size < 0:
        raise errors.invalid(f'Cloud TPU received a bad request. The field "page_size" cannot be "{size}"')
    after = _decode(token)
    rest = sorted((item for item in items if key(item) > after), key=key)
    limit = min(size or _DEFAULT, _MAXIMUM)
    chosen = rest[:limit]
    return chosen, _encode(key(chosen[-1])) if len(rest) > limit else ""


def _encode(last: str) -> str:
    return base64.urlsafe_b64encode(last.encode()).decode()


def _decode(token: str) -> str:
    try:
        return base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise errors.invalid(f'Cloud TPU received a bad request. The page token "{token}" is not valid') from error
