# SPDX-License-Identifier: Apache-2.0
"""Auth managers and tokens for the tests; each is Airflow's own with other rights."""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

VISIBLE = "tpu_train"


class OneDagAuthManager(SimpleAuthManager):
    """Airflow's simple auth manager for people who may see one DAG."""

    def is_authorized_dag(self, **kwargs: Any) -> bool:
        """Refuse every DAG but one."""
        details = kwargs.get("details")
        named = details.id if details is not None else None
        return named in (None, VISIBLE) and super().is_authorized_dag(**kwargs)


def bearer(role: str | None) -> dict[str, str]:
    """The header of a logged-in user of this role; None is a user without any right."""
    user = SimpleAuthManagerUser(username="somebody", role=role)
    return {"Authorization": f"Bearer {get_auth_manager().generate_jwt(user=user)}"}
