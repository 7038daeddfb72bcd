# SPDX-License-Identifier: Apache-2.0
"""A connection to Google as our hooks read it: what is wrong with it is an error of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.providers.google.common.hooks.base_google import GoogleBaseHook

from airflow_tpu.clients import airflow_state
from airflow_tpu.core.tpu.api_errors import classify_token

if TYPE_CHECKING:
    from airflow.sdk import Connection
    from google.auth.credentials import Credentials


class GoogleConnection(GoogleBaseHook):
    """Mixin of the hooks that read a ``google_cloud_platform`` connection."""

    @classmethod
    def get_connection(cls, conn_id: str) -> Connection:
        """A connection by its id.

        :raises ConfigError: it is not defined.
        :raises TransientError: Airflow did not answer.
        """
        return airflow_state.connection(conn_id)

    def get_credentials_and_project_id(self) -> tuple[Credentials, str | None]:
        """Credentials and project.

        :raises AccessDenied: there are none, their key cannot be read, or Google refuses them.
        :raises TransientError: Google gives no access token for the moment.
        """
        from airflow.sdk.exceptions import AirflowException
        from google.auth.exceptions import GoogleAuthError, TransportError

        try:
            return super().get_credentials_and_project_id()
        except (GoogleAuthError, AirflowException, OSError, ValueError) as error:
            passing = isinstance(error, TransportError) or getattr(error, "retryable", False)
            raise classify_token(str(error), f"the connection {self.gcp_conn_id}", bool(passing)) from error
