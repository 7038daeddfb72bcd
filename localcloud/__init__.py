# SPDX-License-Identifier: Apache-2.0
"""The local cloud: Cloud TPU, TPU VMs and Cloud Storage on one machine, in one process, without a Google account.

It never imports Airflow or ``airflow_tpu``: a stand-in that shares code with what it stands in for shares its mistakes.
"""
