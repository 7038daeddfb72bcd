# SPDX-License-Identifier: Apache-2.0
"""Copy what the run produced to Cloud Storage while its TPU lives, and prove that it arrived."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_tpu.clients.log_groups import log_group
from airflow_tpu.consequences import MAY_LIVE
from airflow_tpu.core.run.job import training_of
from airflow_tpu.core.tpu.commands import tensorboard_command
from airflow_tpu.errors import ChecksumMismatch, ConfigError, Fault, NothingProduced
from airflow_tpu.links.artifacts import CloudTPUArtifactsLink
from airflow_tpu.operators.base import CloudTPUBaseOperator
from airflow_tpu.operators.lease import check_session_is_open
from airflow_tpu.operators.provision import INFRASTRUCTURE_RETRIES
from airflow_tpu.operators.reporting import reported
from airflow_tpu.operators.run import nearest_trainings

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_tpu.core.run.manifest import Manifest
    from airflow_tpu.core.run.run_record import RunRecord
    from airflow_tpu.lifecycle.run_context import RunContext
    from airflow_tpu.lifecycle.training.collect import Collected


class CloudTPUArtifactsToGCSOperator(CloudTPUBaseOperator):
    """Push the run's output from the TPU VM to Cloud Storage, manifest last, and verify it against the bucket.

    :param allow_empty: accept a run that wrote no file at all.
    :param training: id of the task whose output it is; empty for the nearest training above. Of several on branches
        that is the one that has run.
    :return: where the artifacts are, how many and how large, and the run's metrics if it wrote any.
    """

    consequence = MAY_LIVE
    default_retries = INFRASTRUCTURE_RETRIES

    operator_extra_links = (CloudTPUArtifactsLink(),)

    def __init__(self, *, allow_empty: bool = False, training: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_session_is_open(self)
        self.allow_empty = allow_empty
        self.of_task = training

    @reported
    def execute(self, context: Context) -> dict[str, Any]:
        """Push what *train* has not brought, verify, describe."""
        run = self.run_context(context)
        record = run.stores.runs.read(run.key)
        run = run.of_training(self._chosen(record))
        uri = run.attempt(record).uri
        CloudTPUArtifactsLink.persist_uri(context, uri, run.request.spec.project_id)
        collected = self._arrived(run, uri) or self._copied(run, record, uri)
        self._require_output(run, record, collected, uri)
        return self._describe(run, record, collected.manifest, uri)

    def _arrived(self, run: RunContext, uri: str) -> Collected | None:
        """What *train* has brought to the bucket, None unless all of it is there as its manifest says."""
        from airflow_tpu.lifecycle.training.collect import brought, confirm

        found = brought(run, uri)
        if found is None:
            return None
        with log_group(self.log, "Compare the bucket with the manifest"):
            try:
                confirm(run, found.manifest, uri)
            except ChecksumMismatch as error:
                self.log.warning("uploading again what is missing or differs: %s", error)
                return None
        return found

    def _copied(self, run: RunContext, record: RunRecord, uri: str) -> Collected:
        from airflow_tpu.lifecycle.training.collect import collect, confirm

        _ = run.clients.access  # connections are read before the event loop runs
        with log_group(self.log, "Upload from the TPU what is not in the bucket yet"):
            collected = run.clients.tpu.run(lambda client: collect(client, run, record, uri))
        with log_group(self.log, "Compare the bucket with the manifest"):
            confirm(run, collected.manifest, uri)
        return collected

    def _chosen(self, record: RunRecord) -> str:
        """Name of the training whose output is copied.

        :raises ConfigError: it has not been started in this session.
        """
        named = [self.of_task] if self.of_task else [task.task_id for task in nearest_trainings(self)]
        names = [training_of(task_id, self.session) for task_id in named]
        started = [name for name in names if name in record.trainings]
        if not started:
            asked = ", ".join(names) or "no training above this task"
            fault = Fault("training", asked, "has not been started in this session", tuple(record.trainings))
            raise ConfigError([fault], f"task {self.task_id}")
        return record.current if record.current in started else started[-1]

    def _require_output(self, run: RunContext, record: RunRecord, collected: Collected, uri: str) -> None:
        from airflow_tpu.lifecycle.training.bucket_outputs import written_elsewhere

        for problem in collected.skipped:
            self.log.warning("not copied: %s", problem)
        collected.check(uri)
        if collected.outputs or self.allow_empty:
            return
        written = written_elsewhere(run, record)
        if not written:
            raise NothingProduced(
                "the run ended well and left no file in TRC_OUTPUT_DIR or beside its script, nor any object below the "
                f"gs:// URIs of its form; its log is below {uri}. Write results there, or set allow_empty if there are "
                "none."
            )
        self.log.info("the run has written straight to %s", ", ".join(one.start for one in written))

    def _describe(self, run: RunContext, record: RunRecord, manifest: Manifest, uri: str) -> dict[str, Any]:
        from airflow_tpu.lifecycle.training.reported import metrics

        size = manifest.size
        run.stores.runs.update(record, lambda now: now.with_attempt(run.training, artifact_bytes=size))
        self.log.info("%d file(s), %d bytes, verified at %s", len(manifest.files), size, uri)
        found = metrics(run.clients.storage, uri)
        if found:
            self.log.info("metrics: %s", found)
        self.log.info("curves: %s", tensorboard_command(uri))
        return {
            "uri": uri,
            "files": len(manifest.files),
            "bytes": size,
            "metrics": found,
        }
