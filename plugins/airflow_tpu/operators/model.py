# SPDX-License-Identifier: Apache-2.0
"""Retrain only when something has changed, promote only what is better, go back when it was not."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias

from airflow_tpu.clients.log_groups import log_group
from airflow_tpu.consequences import NOTHING_CREATED
from airflow_tpu.core.model.model import Bar, Champion, Decision, ModelManifest, decide
from airflow_tpu.errors import ConfigError, Fault
from airflow_tpu.operators.base import CloudTPUBaseOperator, skip
from airflow_tpu.operators.reporting import ReportingOperator, reported

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_tpu.core.model.turn import Turn
    from airflow_tpu.lifecycle.run_context import RunContext
    from airflow_tpu.stores.models import ModelStore


MODELS_ASSET = "tpu-models"
"""Alias of the assets of all models: a DAG that is scheduled on it follows each of their promotions."""


def model_asset(model: str) -> str:
    """Name of a model's asset, whose event says that the model has a new champion."""
    return f"tpu-model-{model}"


TURN_RETRIES = 1000
"""How often a run looks whether it is its turn, five minutes apart: three days."""


class CloudTPUSkipUnchangedOperator(CloudTPUBaseOperator):
    """Skip the training when data, code and settings are those of the newest version of the model.

    Code is what travels with the script, and the field ``revision``. A script that fetches other code by itself is
    trained again each time, unless ``revision`` names that code. A script that reads ``TRC_LOGICAL_DATE`` has other
    data on another date.

    It also waits for its turn: while another DAG run trains the same model, this task is tried again every few minutes
    and holds no worker slot. So each night of a backfill trains by itself, whatever its ``max_active_runs`` says.

    :return: the fingerprint of what would be trained.
    """

    consequence = NOTHING_CREATED

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"retries": TURN_RETRIES, **kwargs})

    @reported
    def execute(self, context: Context) -> str:
        """Take the turn, compare fingerprints.

        :raises ModelBusy: another DAG run trains the model.
        :raises AirflowSkipException: nothing has changed; what follows is skipped, the run is green.
        """
        from airflow_tpu.core.model.fetched_code import fetching_files
        from airflow_tpu.core.model.fingerprint import code_digest
        from airflow_tpu.lifecycle.training.launch import build_bundle
        from airflow_tpu.lifecycle.training.model_version import dates_read, fingerprint_of

        run = self.run_context(context)
        store = run.models
        self._take_turn(run)
        bundle = build_bundle(run)
        code = code_digest(bundle.sha256, run.revision)
        now = fingerprint_of(run.clients.storage, run.conf, code, dates_read(run, bundle))
        newest = next(iter(store.versions()), None)
        manifest = store.manifest(newest) if newest else None
        if manifest is None or manifest.fingerprint != now:
            before = "there is no version yet" if manifest is None else f"version {newest} was {manifest.fingerprint}"
            self.log.info("training: fingerprint %s; %s", now, before)
            return now
        fetching = [] if run.conf.revision and not run.commit else fetching_files(bundle.data)
        if fetching:
            self.log.warning(
                "training: %s fetches code whose commit it does not name, so whether that has changed is unknown. "
                "Name it in the field revision ($TRC_REVISION) to skip what has not",
                ", ".join(fetching),
            )
            return now
        skip(
            self.log,
            f"data, code and settings are those of version {newest} ({now}): training again would bring nothing new",
        )

    def _take_turn(self, run: RunContext) -> None:
        """Other Airflows cannot be asked about their runs; their turns end with their deadlines."""
        from airflow_tpu.clients.airflow_state import run_state
        from airflow_tpu.core.model.turn import Turn
        from airflow_tpu.core.run.expiry import RUN_OVER

        def is_over(held: Turn) -> bool:
            if held.until <= run.clock.now():
                return True
            return held.airflow == mine.airflow and run_state(held.dag_id, held.run_id) in ("", *RUN_OVER)

        until = run.request.deadline(run.clock.now()) + dt.timedelta(hours=run.conf.start_within_hours)
        mine = Turn(run.key.airflow, run.key.dag_id, run.key.run_id, until)
        run.models.take_turn(mine, is_over)


class CloudTPUPromoteModelOperator(CloudTPUBaseOperator):
    """Write the trained version down and make it the champion if it is better on the same held-out examples.

    A promotion emits an event of the model's asset, ``tpu-model-NAME``, with the manifest as extra; also one of the
    alias ``tpu-models``, which stands for every model. Assets in ``outlets`` get the same extra.

    :param artifacts_uri: where *copy* has put the run's artifacts (templated).
    :param fingerprint: what :class:`CloudTPUSkipUnchangedOperator` returned (templated).
    :param metric: name of the metric in ``result.json`` that decides.
    :param higher_is_better: direction of the metric; None takes what ``result.json`` says, which must not contradict.
    :param min_improvement: how much better than the champion it must be, in the metric's own unit.
    :param keep_versions: versions that stay, with their artifacts; 0 keeps all.
    :return: version, whether it was promoted, and why.
    :raises ConfigError: one of the four cannot be meant, which fails the DAG's import and not a night's training.
    """

    template_fields = (*CloudTPUBaseOperator.template_fields, "artifacts_uri", "fingerprint")

    def __init__(
        self,
        *,
        artifacts_uri: str,
        fingerprint: str,
        metric: str,
        higher_is_better: bool | None = None,
        min_improvement: float = 0.0,
        keep_versions: int = 10,
        **kwargs: Any,
    ) -> None:
        # An alias: which model's asset it is, is known when the form is.
        kwargs["outlets"] = [*kwargs.get("outlets", ()), AssetAlias(MODELS_ASSET)]
        super().__init__(**kwargs)
        self.artifacts_uri = artifacts_uri
        self.fingerprint = fingerprint
        self.bar = Bar(metric, min_improvement, higher_is_better)
        self.keep_versions = keep_versions
        if faults := list(_doubts(self.bar, keep_versions)):
            raise ConfigError(faults, f"the promotion of task {self.task_id}")

    @reported
    def execute(self, context: Context) -> dict[str, Any]:
        """Register, compare, promote.

        :raises AirflowSkipException: it is not better; the version is kept, the champion stays.
        """
        run = self.run_context(context)
        store = run.models
        with log_group(self.log, "Write the version down"):
            manifest = self._manifest(context, run)
            store.register(manifest)
        promoted = self._promote(store, manifest)
        self._prune(store)
        self._publish(context, manifest, promoted)
        return {"version": manifest.version, "uri": manifest.artifacts_uri, "reason": promoted.reason}

    def _manifest(self, context: Context, run: RunContext) -> ModelManifest:
        from airflow_tpu.lifecycle.training.model_version import describe
        from airflow_tpu.lifecycle.training.reported import result

        found = result(run.clients.storage, self.artifacts_uri)
        return describe(run, context["dag_run"], self.fingerprint, (self.artifacts_uri, found))

    def _promote(self, store: ModelStore, manifest: ModelManifest) -> Champion:
        reasons: list[str] = []

        def change(champion: Champion | None) -> Champion | None:
            if champion is not None and champion.version == manifest.version:
                return champion  # an earlier try of this task has done it
            decision = decide(manifest, champion, self.bar)
            reasons.append(decision.reason)
            if not decision.better:
                return None
            return Champion.crown(manifest, decision, _now(), champion.line if champion else ())

        promoted = store.replace(change)
        if promoted is None:
            self._prune(store)
            skip(self.log, f"version {manifest.version} is kept and not promoted; {reasons[-1]}")
        self.log.info("version %s is the champion of %s: %s", promoted.version, store.model, promoted.reason)
        return promoted

    def _prune(self, store: ModelStore) -> None:
        with log_group(self.log, "Forget old versions"):
            for manifest in store.prune(self.keep_versions):
                files, size = store.remove_run(manifest)
                self.log.info("forgot version %s: %d file(s), %d bytes removed", manifest.version, files, size)

    def _publish(self, context: Context, manifest: ModelManifest, promoted: Champion) -> None:
        from airflow_tpu.core import json_form

        extra = {**json_form.to_json(manifest), "reason": promoted.reason}
        for outlet in self.outlets:
            if outlet == AssetAlias(MODELS_ASSET):
                context["outlet_events"][outlet].add(Asset(model_asset(manifest.model)), extra=extra)
            else:
                context["outlet_events"][outlet].extra = extra


def _doubts(bar: Bar, keep_versions: object) -> Iterator[Fault]:
    """What is wrong with the values that decide on a promotion; all of them, before anything is trained for it."""
    if not isinstance(bar.metric, str) or not bar.metric.strip():
        yield Fault("metric", bar.metric, "is no name of a metric in result.json")
    if bar.higher_is_better not in (None, True, False):
        yield Fault("higher_is_better", bar.higher_is_better, "is not True, False or None")
    if not _is_number(bar.min_improvement) or not math.isfinite(bar.min_improvement):
        yield Fault("min_improvement", bar.min_improvement, "is no number in the unit of the metric, such as 0.01")
    if not _is_number(keep_versions) or not isinstance(keep_versions, int) or keep_versions < 0:
        yield Fault("keep_versions", keep_versions, "is no whole number from 0 (keep all) on")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class CloudTPURollBackModelOperator(ReportingOperator):
    """Make a former version the champion again, in one step.

    :param model: name under which versions compete (templated).
    :param version: the version to go back to; empty takes the champion before this one (templated).
    :param gcp_conn_id: connection of type ``google_cloud_platform`` (templated).
    :return: the new champion.
    """

    template_fields = ("model", "version", "gcp_conn_id")

    def __init__(
        self, *, model: str, version: str = "", gcp_conn_id: str = "google_cloud_default", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.model = model
        self.version = version
        self.gcp_conn_id = gcp_conn_id

    @reported
    def execute(self, context: Context) -> dict[str, Any]:
        """Move the pointer.

        :raises ConfigError: there is no such version, or nothing to go back to.
        """
        from airflow_tpu.hooks.artifacts import ArtifactsHook
        from airflow_tpu.stores.grants import load_grant, store_root
        from airflow_tpu.stores.models import ModelStore

        store = ModelStore(ArtifactsHook(self.gcp_conn_id), store_root(load_grant()), self.model)
        champion = store.replace(lambda now: self._back(store, now, context["dag_run"].run_id))
        self.log.info("the champion of %s: %s", self.model, champion)
        from airflow_tpu.core import json_form

        return json_form.to_json(champion) if champion else {}

    def _back(self, store: ModelStore, champion: Champion | None, run_id: str) -> Champion:
        wanted = self.version or next(iter(champion.history if champion else ()), "")
        manifest = store.manifest(wanted) if wanted else None
        if champion is None or manifest is None:
            problem = "is not a version that is kept" if wanted else "there is no champion before this one"
            raise ConfigError([Fault("version", wanted, problem, tuple(store.versions()))], f"model {self.model}")
        decision = Decision(True, f"rolled back from {champion.version} by {run_id}")
        return Champion.crown(manifest, decision, _now(), champion.history)


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat()
