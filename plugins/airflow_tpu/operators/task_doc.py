"""What the UI tells of a task: the words with which its operator explains itself."""

from __future__ import annotations

import inspect
import re

_ROLE = re.compile(r":\w+:`~?(?:[\w.]+\.)?(\w+)`")


def task_doc(kind: type) -> str:
    """Markdown of a class's docstring, without its fields.

    :param kind: an operator.
    """
    prose = (inspect.getdoc(kind) or "").partition("\n:")[0].partition(".. code-block::")[0]
    return _ROLE.sub(r"`\1`", prose).replace("``", "`").strip()
