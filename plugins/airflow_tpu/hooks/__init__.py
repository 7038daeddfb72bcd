# SPDX-License-Identifier: Apache-2.0
"""Airflow hooks: a connection becomes a client."""
