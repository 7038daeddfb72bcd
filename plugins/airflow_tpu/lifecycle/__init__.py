# SPDX-License-Identifier: Apache-2.0
"""The verbs of the product in their order, without Airflow: ensure, train, release, reap."""
