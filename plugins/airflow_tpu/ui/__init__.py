# SPDX-License-Identifier: Apache-2.0
"""The page *TPU usage* in the Airflow UI: read-only, behind Airflow's own permissions."""
