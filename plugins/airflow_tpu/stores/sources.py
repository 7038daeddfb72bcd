# SPDX-License-Identifier: Apache-2.0
"""Keep the commit that each DAG run trains: the first task that needs it writes it, all others read it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_tpu.core.source.pin import PIN_FORM, SourcePin
from airflow_tpu.stores.store import Store

if TYPE_CHECKING:
    from airflow_tpu.core.tpu.labels import RunKey

_DIGITS = 16


@dataclass(frozen=True)
class SourceStore(Store):
    """Objects below ``gs://bucket/prefix/sources/``."""

    def uri(self, key: RunKey, address: str) -> str:
        """Where the commit of an address is, for all sessions and mapped instances of a DAG run."""
        digest = hashlib.sha256(address.encode()).hexdigest()[:_DIGITS]
        return f"{self.root}/sources/{key.family}-{key.dag_run}/{digest}.json"

    def pin(self, key: RunKey, address: str, look: Callable[[], SourcePin]) -> SourcePin:
        """Return the commit that an address means in a DAG run; of several tasks that look, the first to write decides.

        :param key: of any session of it.
        :param address: as the form has it.
        :param look: asks the server.
        """
        uri = self.uri(key, address)
        found = self.load(uri, PIN_FORM)
        if found is not None:
            return found
        seen = look()

        def first(current: SourcePin | None) -> SourcePin:
            return current or seen

        return self.change(uri, PIN_FORM, first)
