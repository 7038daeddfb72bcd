# SPDX-License-Identifier: Apache-2.0
"""Start when a model has got a new champion, and measure it on a TPU: the event says where its artifacts are."""

from __future__ import annotations

from airflow.sdk import DAG, Asset

from airflow_tpu.deadlines import deadline_alerts
from airflow_tpu.operators.run import CloudTPUTrainOperator
from airflow_tpu.task_groups import tpu_session
from airflow_tpu.tpu_run import TPURun

CHAMPION = Asset("tpu-model-digits")
# A run that a person starts has no event, and measures nothing.
URI = "{% for events in triggering_asset_events.values() %}{{ events[-1].extra.artifacts_uri }}{% endfor %}"
RUN = TPURun(script="hello.py", accelerator_type="v2-8", zone="us-central1-f", arguments=f"--model {URI}")

with (
    DAG(dag_id="on_new_champion", schedule=[CHAMPION], deadline=deadline_alerts(), doc_md=__doc__) as dag,
    tpu_session(conf=RUN) as session,
):
    CloudTPUTrainOperator(task_id="measure", **session.arguments)
