"""What the stores of a grant share: the place of their objects below one prefix, and the clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_tpu.clients.clock import WALL, Clock
from airflow_tpu.stores.parallel_reads import read_many

if TYPE_CHECKING:
    from airflow_tpu.hooks.artifacts import ArtifactsHook


@dataclass(frozen=True)
class Store:
    """Objects below ``gs://bucket/prefix``.

    :param hook: Cloud Storage.
    :param root: ``gs://bucket/prefix`` of the grant.
    :param clock: where the store takes the time from.
    """

    hook: ArtifactsHook
    root: str
    clock: Clock = field(default=WALL, kw_only=True)

    def names(self, prefix: str) -> list[str]:
        """Names, without the bucket, of the objects below ``root/prefix``."""
        return [info.name for info in self.hook.listing(f"{self.root}/{prefix}")]

    def documents(self, names: Iterable[str]) -> Iterator[dict[str, Any]]:
        """Contents of JSON objects by their names, in that order; one that has gone since the listing is left out."""
        bucket = self.root.removeprefix("gs://").partition("/")[0]
        uris = [f"gs://{bucket}/{name}" for name in names]
        return (stored.data for stored in read_many(self.hook.read_json, uris, self.clock) if stored is not None)
