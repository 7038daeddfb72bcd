# SPDX-License-Identifier: Apache-2.0
"""Pure decisions: no Airflow, no Google client, no SSH; everything here is a function of its arguments."""
