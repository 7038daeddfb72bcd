# SPDX-License-Identifier: Apache-2.0
"""What a task tells people: how it explains itself in the UI, and how it fails.

A task fails by an error of the tree, without Python frames, with a last line for a person. Airflow 3.3 prints the
frames of every exception but ``SystemExit`` (``airflow/sdk/execution_time/task_runner.py``), and folds what it logs
afterwards. So an error whose cause is known leaves a task as both what it is and a ``SystemExit``; the retry policy and
callbacks see its class as before. A fault of ours leaves as it is, with its frames.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeGuard, TypeVar, cast

from airflow.sdk import BaseOperator
from airflow.sdk.definitions.param import ParamsDict

from airflow_tpu.consequences import NO_TPU, advice, stated
from airflow_tpu.errors import ConfigError, Retry, TPUError
from airflow_tpu.retry import reason_of_airflow, retry_policy

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.definitions.mappedoperator import MappedOperator

Execute = TypeVar("Execute", bound=Callable[..., Any])

_ROLE = re.compile(r":\w+:`~?(?:[\w.]+\.)?(\w+)`")
_UNKNOWN = (
    "this package does not know the error: if it stays after the task was cleared, report it with the frames above."
)
_AFTER_THE_LAST = "Nothing yet. If the last try fails too: "
_ONCE_MORE = "it was tried as often as allowed; when the cause is gone, clear the task: it continues where it was."


def reported(execute: Execute) -> Execute:
    """Decorate ``execute``, or a method that continues it, of a :class:`ReportingOperator`."""

    @functools.wraps(execute)
    def run(self: ReportingOperator, *args: Any, **kwargs: Any) -> Any:
        try:
            with stated(self.consequence):
                return execute(self, *args, **kwargs)
        except TPUError as error:
            raise without_frames(error) from error

    run.reported = True  # type: ignore[attr-defined]  # a test looks for methods that were forgotten
    return cast(Execute, run)


def without_frames(error: TPUError) -> TPUError:
    """The same error as an exception of which Airflow prints no frames."""
    kind = type(error)
    if issubclass(kind, SystemExit):
        return error
    quiet = type(kind.__name__, (kind, SystemExit), {"__module__": kind.__module__, "__doc__": kind.__doc__})
    copy = cast(TPUError, quiet.__new__(quiet, *error.args))
    vars(copy).update(vars(error))
    copy.code = 1  # type: ignore[attr-defined]  # of SystemExit; Airflow prints it
    return copy


class ReportingOperator(BaseOperator):
    """Base of every operator of this package: its log ends with what happened, what it costs and what to do."""

    consequence: ClassVar[str] = NO_TPU
    """What an error of this task means for the TPU where the error does not say."""

    def __init__(self, **kwargs: Any) -> None:
        # However many retries: what no other try cures is not tried again.
        super().__init__(**{"doc_md": task_doc(type(self)), "retry_policy": retry_policy(), **kwargs})
        # Each task has a copy of the DAG's params that nothing reads; the scheduler would get the form once for each.
        self.params = ParamsDict.filter_params_by_source(ParamsDict(self.params), source="task")
        self.on_failure_callback = [*self.on_failure_callback, say_failed]
        self.on_retry_callback = [*self.on_retry_callback, say_tried_again]


def say_failed(context: Context) -> None:
    """End the log of a task that has failed for good."""
    _say(context, True)


def say_tried_again(context: Context) -> None:
    """End the log of a try after which another one follows."""
    _say(context, False)


def _say(context: Context, final: bool) -> None:
    error = cast(object, context.get("exception"))
    if isinstance(error, BaseException):  # a text where a worker has died, and the DAG processor calls this
        task = context["task"]
        # Airflow has opened the group "Post Execute", which its log page shows folded.
        task.log.info("::endgroup::")
        if len(str(error).splitlines()) > (2 if _has_one_fault(error) else 1):
            task.log.error("%s", error)
        task.log.error("%s", last_line(error, task, final))


def last_line(error: BaseException, task: BaseOperator | MappedOperator, final: bool) -> str:
    """What happened, what it costs and what to do, in one line.

    :param error: what ended the try.
    :param task: of which operator.
    :param final: whether it is not tried again.
    """
    kind, consequence = type(error).__name__, getattr(task, "consequence", "")
    if isinstance(error, TPUError):
        said = advice(error)
        what, cost = _what(error), _sentence(error.consequence or consequence) or said.cost
        todo = _ONCE_MORE if final and error.retry is not Retry.NEVER else said.todo
        if not final and error.retry is Retry.NEVER:  # a script that its task tries again
            todo = f"{_AFTER_THE_LAST}{todo}"
        kind = f"{kind} in docs/errors.md"
    else:
        known = reason_of_airflow(error)
        what, cost = f"{kind}: {(str(error).splitlines() or [''])[0]}", _sentence(consequence)
        todo = f"{known}." if known else _UNKNOWN
    again = "It is not tried again" if final else "It is tried again"
    return f"The task {task.task_id} has failed: {what.rstrip('.')}. {cost} {again}. To do: {todo} ({kind})"


def _has_one_fault(error: BaseException) -> TypeGuard[ConfigError]:
    return isinstance(error, ConfigError) and len(error.faults) == 1


def _what(error: TPUError) -> str:
    text = f"{error.subject}: {error.faults[0]}" if _has_one_fault(error) else error.message
    return (text.splitlines() or [""])[0]


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}." if words else ""


def task_doc(kind: type) -> str:
    """Markdown of a class's docstring, without its fields.

    :param kind: an operator.
    """
    prose = (inspect.getdoc(kind) or "").partition("\n:")[0].partition(".. code-block::")[0]
    return _ROLE.sub(r"`\1`", prose).replace("``", "`").strip()
