# SPDX-License-Identifier: Apache-2.0
"""Buttons in the Airflow UI."""
