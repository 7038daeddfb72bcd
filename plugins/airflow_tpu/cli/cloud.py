# SPDX-License-Identifier: Apache-2.0
"""Reach Google Cloud from a command."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from airflow_tpu.cli.verbs import Option, option
from airflow_tpu.errors import CloudError

CONNECTION: Option = option(
    "--gcp-conn-id",
    default="google_cloud_default",
    metavar="ID",
    help="Airflow connection to Google Cloud (default: %(default)s)",
)

_CONTEXT = "_AIRFLOW_PROCESS_CONTEXT"


@contextmanager
def reached() -> Iterator[None]:
    """Let connections come from Airflow's database too, and say what went wrong without a traceback.

    :raises CloudError: there is no such connection, or Google Cloud did not answer.
    """
    from airflow.sdk.exceptions import AirflowException
    from google.api_core.exceptions import GoogleAPIError
    from google.auth.exceptions import GoogleAuthError

    # A process that is neither a task nor a server reads connections from the environment only (Airflow 3.3.2,
    # ensure_secrets_backend_loaded); the person at this terminal may read the database as `airflow connections` does.
    before = os.environ.setdefault(_CONTEXT, "")
    os.environ[_CONTEXT] = before or "server"
    try:
        yield
    except (AirflowException, GoogleAPIError, GoogleAuthError, ConnectionError) as error:
        raise CloudError(f"Google Cloud could not be asked ({type(error).__name__}): {error}") from error
    finally:
        os.environ[_CONTEXT] = before
