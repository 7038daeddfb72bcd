# SPDX-License-Identifier: Apache-2.0
"""What a field of the form refers to: where a project comes from, and which secrets of Airflow its script gets."""
