# SPDX-License-Identifier: Apache-2.0
"""The verbs of ``airflow-tpu`` and of ``airflow tpu``: arguments in, text out, decisions elsewhere."""
