"""Have the worker push its output to the bucket, then compare the bucket with the manifest."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_tpu import protocol
from airflow_tpu.core.artifacts import Manifest, verify
from airflow_tpu.core.job import RunRef
from airflow_tpu.core.messages import Pushed
from airflow_tpu.errors import ArtifactsLost, ChecksumMismatch, ConnectionFailed, TPULost
from airflow_tpu.hooks.boot import REACHED
from airflow_tpu.hooks.launch import locate
from airflow_tpu.hooks.run import RunSession

if TYPE_CHECKING:
    from airflow_tpu.core.lease import Lease
    from airflow_tpu.hooks.workbench import Workbench

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Collected:
    """What a push has brought to the bucket.

    :param manifest: every file that is there.
    :param skipped: what was left out, or could not be read, in words.
    """

    manifest: Manifest
    skipped: tuple[str, ...]

    @property
    def outputs(self) -> int:
        """Number of files that the script itself wrote; its log does not count."""
        return sum(1 for file in self.manifest.files if file.path.startswith(f"{protocol.OUTPUT_DIR}/"))


async def collect(bench: Workbench, lease: Lease, uri: str) -> Collected:
    """Push the last attempt's output and log from the worker to the bucket.

    :param bench: hooks and stores.
    :param lease: names node and attempt.
    :param uri: where to.
    :return: what was pushed, as the worker lists it.
    :raises ArtifactsLost: the node is gone.
    :raises RemoteError: the worker cannot be reached or refused.
    """
    node = bench.attempt_node(lease)
    async with bench.tpu.client() as client:
        try:
            job = await locate(client, bench, node, RunRef(lease.key.name, lease.attempt))
        except TPULost as error:
            raise ArtifactsLost(f"{error} What was not in the bucket is lost with it.") from error
        async with RunSession(job.address, bench.access.login, REACHED) as session:
            async for message in session.push(job.ref, uri):
                if isinstance(message, Pushed):
                    return _collected(message)
    raise ConnectionFailed(f"the push from {node} ended without a manifest")


def confirm(bench: Workbench, manifest: Manifest, uri: str) -> None:
    """Compare count, sizes and checksums in the bucket with the manifest.

    :raises ChecksumMismatch: something differs or is missing; every difference is named.
    """
    prefix = uri.removeprefix("gs://").partition("/")[2] + "/"
    problems = verify(manifest, {item.name.removeprefix(prefix): item for item in bench.storage.listing(f"{uri}/")})
    if problems:
        raise ChecksumMismatch(f"{uri} differs from its manifest:\n" + "\n".join(f"  - {text}" for text in problems))


def _collected(message: Pushed) -> Collected:
    skipped = [str(entry) for kind in ("skipped", "failed") for entry in message.manifest.get(kind, ())]
    return Collected(Manifest.from_json(message.manifest), tuple(skipped))
