# SPDX-License-Identifier: Apache-2.0
"""A link whose URL is known when the task runs and stored as text: no Google module is imported to show it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink, BaseXCom

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context
    from airflow.sdk.types import TaskInstanceKey


class StoredLink(BaseOperatorLink):
    """A button whose URL the task stored under :attr:`key`."""

    name: ClassVar[str]
    key: ClassVar[str]
    form: ClassVar[str]

    @property
    def xcom_key(self) -> str:
        """Under which key the URL is stored."""
        return self.key

    @classmethod
    def persist(cls, context: Context, **values: Any) -> str:
        """Store the URL for the UI.

        :param context: of the running task.
        :param values: parts of the URL; names from outside are quoted.
        :return: the URL.
        """
        quoted = {name: quote(str(value), safe="/") for name, value in values.items()}
        return cls.store(context, cls.form.format(**quoted))

    @classmethod
    def store(cls, context: Context, url: str) -> str:
        """Store a URL as it is; returns it."""
        context["ti"].xcom_push(key=cls.key, value=url)
        return url

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """The stored URL, empty before the task has stored it."""
        # Two classes of Airflow's for the same key, which the annotations take for different things.
        return str(BaseXCom.get_value(ti_key=ti_key, key=self.key) or "")  # type: ignore[arg-type]
