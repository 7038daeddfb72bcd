# SPDX-License-Identifier: Apache-2.0
"""Train on the Cloud TPUs of a TPU Research Cloud grant, from Apache Airflow."""

__version__ = "0.1.0"
