# SPDX-License-Identifier: Apache-2.0
"""Gives the TPU back when Airflow has vanished."""
