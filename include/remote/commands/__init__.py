# SPDX-License-Identifier: Apache-2.0
"""The commands that Airflow calls, and the restore step: one module each."""
