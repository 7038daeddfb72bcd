# SPDX-License-Identifier: Apache-2.0
"""A nightly retraining whose nights can be told apart, once a year so that none is due while a test runs."""

from airflow_tpu.nightly import nightly_dag
from airflow_tpu.tpu_run import TPURun

dag = nightly_dag(
    TPURun(
        model="nights",
        script="gs://trc-local/scripts/steady.py",
        environment="STORY=night-{{ ds }}",
        provisioning="node",
        zone="us-central1-f",
        tier="spot",
        start_within_hours=0,
    ),
    schedule="0 0 1 1 *",
    metric="loss",
    dag_id="nights",
)
