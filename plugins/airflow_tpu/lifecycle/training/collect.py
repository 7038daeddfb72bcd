# SPDX-License-Identifier: Apache-2.0
"""Have the worker push its output to the bucket, then compare the bucket with the manifest."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_tpu import protocol
from airflow_tpu.clients.endpoints import cloud_failures
from airflow_tpu.core.run.manifest import Manifest, verify
from airflow_tpu.core.run.messages import Pushed
from airflow_tpu.errors import (
    AccessDenied,
    ArtifactError,
    ArtifactsLost,
    ChecksumMismatch,
    ConnectionFailed,
    TPULost,
    UploadIncomplete,
)
from airflow_tpu.lifecycle.training.launch import locate
from airflow_tpu.lifecycle.waits.polling import PollLoop, PollPolicy
from airflow_tpu.lifecycle.waits.reachability import session_with

if TYPE_CHECKING:
    from airflow_tpu.clients.tpu_api import TPUClient
    from airflow_tpu.core.run.run_record import RunRecord
    from airflow_tpu.lifecycle.run_context import RunContext

log = logging.getLogger(__name__)

_BESIDE_SCRIPT = (
    "the script has left %d file(s) in its working directory; they are in %s. A TPU that is taken away in mid-run "
    "takes such files along: write checkpoints to TRC_CHECKPOINT_DIR and results to TRC_OUTPUT_DIR"
)

# How the worker words a refusal of the bucket: path, status, message.
_REFUSAL = re.compile(r": 40[013] ")

SAVE_SECONDS = 600.0
"""How long a delete waits for the copy of what no task has copied."""


@dataclass(frozen=True)
class Collected:
    """What a push has brought to the bucket.

    :param manifest: every file that is there.
    :param skipped: what is nothing to copy, such as sockets, in words.
    :param failed: what did not arrive, in words.
    """

    manifest: Manifest
    skipped: tuple[str, ...]
    failed: tuple[str, ...] = ()

    def check(self, uri: str) -> None:
        """Demand that everything has arrived: the TPU is deleted next, and with it what has not.

        :raises UploadIncomplete: names every file that has not.
        :raises AccessDenied: the same, when the bucket refused: no other try helps against that.
        """
        if self.failed:
            named = "\n".join(f"  - {text}" for text in self.failed)
            refused = all(_REFUSAL.search(text) for text in self.failed)
            kind = AccessDenied if refused else UploadIncomplete
            raise kind(f"{len(self.failed)} file(s) could not be uploaded to {uri}:\n{named}")

    def tell(self, uri: str) -> None:
        """Log what is kept of a run without a good end, and what is not."""
        for problem in (*self.skipped, *self.failed):
            log.warning("not kept: %s", problem)
        log.info("kept what the run had produced: %d file(s) below %s", len(self.manifest.files), uri)

    @property
    def beside_script(self) -> int:
        """Number of files that the script has left in its working directory."""
        return sum(1 for file in self.manifest.files if file.path.startswith(f"{protocol.WORKING_DIR}/"))

    @property
    def outputs(self) -> int:
        """Number of files that the script itself wrote; its log does not count."""
        folders = (f"{protocol.OUTPUT_DIR}/", f"{protocol.WORKING_DIR}/")
        return sum(1 for file in self.manifest.files if file.path.startswith(folders))


async def collect(client: TPUClient, run: RunContext, record: RunRecord, uri: str) -> Collected:
    """Push the last attempt's output and log from the worker to the bucket.

    :param client: the Cloud TPU API.
    :param run: clients and stores.
    :param record: names node and attempt.
    :param uri: where to.
    :return: what was pushed, as the worker lists it.
    :raises ArtifactsLost: the node is gone.
    :raises RemoteError: the worker cannot be reached or refused.
    """
    node = run.attempt_node(record)
    loop = PollLoop(PollPolicy(protocol.HEARTBEAT_SECS, record.lease.expires_at), run.clock)
    try:
        job = await locate(client, run, record, node)
        async with session_with(client, run.clients.access.login, node, job.address) as session:
            async for message in session.push(job.ref, uri):
                if isinstance(message, Pushed):
                    return _said(_collected(message.manifest), uri)
                loop.say("the upload", f"{message.done} of {message.total} file(s) done")
            raise ConnectionFailed(f"the push from {node} ended without a manifest")
    except TPULost as error:
        raise ArtifactsLost(f"{error} What was not in the bucket is lost with it.") from error


def _said(found: Collected, uri: str) -> Collected:
    if found.beside_script:
        log.warning(_BESIDE_SCRIPT, found.beside_script, f"{uri}/{protocol.WORKING_DIR}")
    return found


def save_rest(run: RunContext) -> None:
    """Bring to the bucket what no task has: a person who marks a whole run takes its *copy* away.

    :param run: clients and stores.
    :raises ArtifactsLost: the TPU has gone first.
    :raises TPUError: the worker cannot be reached or refused.
    :raises UploadIncomplete: it took longer than :data:`SAVE_SECONDS`.
    """
    record = run.stores.runs.find(run.key)
    if record is None:
        return
    failures: list[Exception] = []
    for training in record.trainings:
        try:
            _save_training(run.of_training(training), record)
        except cloud_failures() as error:
            log.warning("what %s had produced could not be saved: %s", training, error)
            failures.append(error)
    if failures:
        raise failures[0]


def _save_training(run: RunContext, record: RunRecord) -> None:
    uri = run.attempt(record).uri
    if brought(run, uri) is None:
        _ = run.clients.access  # connections are read before the event loop runs
        try:
            run.clients.tpu.run(lambda client: _collect_within(client, run, record, uri)).tell(uri)
        except TimeoutError as error:
            raise UploadIncomplete(f"after {SAVE_SECONDS:.0f} s the upload to {uri} had not ended") from error


async def _collect_within(client: TPUClient, run: RunContext, record: RunRecord, uri: str) -> Collected:
    return await asyncio.wait_for(collect(client, run, record, uri), SAVE_SECONDS)


def brought(run: RunContext, uri: str) -> Collected | None:
    """What an earlier push of the same attempt has brought to the bucket, for when its TPU is gone.

    :return: None unless all of it is there: the manifest is written last, and names what did not arrive. One that
        cannot be read says nothing; a push writes it again.
    """
    try:
        stored = run.clients.storage.read_json(f"{uri}/{protocol.MANIFEST_FILE}")
        found = None if stored is None else _collected(stored.data)
    except (ArtifactError, KeyError, TypeError, ValueError) as error:
        log.warning("copying again, since the manifest of %s cannot be read: %s", uri, error)
        return None
    return None if found is None or found.failed else found


def confirm(run: RunContext, manifest: Manifest, uri: str) -> None:
    """Compare count, sizes and checksums in the bucket with the manifest.

    :raises ChecksumMismatch: something differs or is missing; every difference is named.
    """
    prefix = uri.removeprefix("gs://").partition("/")[2] + "/"
    problems = verify(
        manifest, {item.name.removeprefix(prefix): item for item in run.clients.storage.listing(f"{uri}/")}
    )
    if problems:
        raise ChecksumMismatch(f"{uri} differs from its manifest:\n" + "\n".join(f"  - {text}" for text in problems))


def _collected(manifest: Mapping[str, Any]) -> Collected:
    return Collected(Manifest.from_json(manifest), _in_words(manifest, "skipped"), _in_words(manifest, "failed"))


def _in_words(manifest: Mapping[str, Any], kind: str) -> tuple[str, ...]:
    return tuple(f"{entry['path']}: {entry['reason']}" for entry in manifest.get(kind, ()))
