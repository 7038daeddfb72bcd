# SPDX-License-Identifier: Apache-2.0
"""The log of a failed task ends with a line for a person; frames of Python stand before it, for faults of ours only."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2
import pytest
from airflow.sdk import RetryAction

import airflow_tpu.operators
from airflow_tpu import errors
from airflow_tpu.operators.grant import CloudTPUCheckGrantOperator
from airflow_tpu.operators.reporting import ReportingOperator, last_line, say_failed, without_frames
from airflow_tpu.operators.run import CloudTPUTrainOperator
from airflow_tpu.retry import retry_policy

FAULT = errors.Fault("zone", "x", "is wrong", ("a", "b"))
TASK = CloudTPUCheckGrantOperator(task_id="check_grant", conf={})


def operators() -> list[type[Any]]:
    """Every operator of the package."""
    modules = sorted(path.stem for path in Path(airflow_tpu.operators.__path__[0]).glob("*.py"))
    members = [vars(importlib.import_module(f"airflow_tpu.operators.{name}")) for name in modules]
    kinds = {kind for names in members for kind in names.values() if inspect.isclass(kind)}
    return sorted((kind for kind in kinds if kind.__name__.endswith("Operator")), key=lambda kind: kind.__name__)


def test_every_task_reports_its_failures() -> None:
    """No method that Airflow calls is without the decorator, and no operator without the callbacks."""
    own = [kind for kind in operators() if kind.__module__.startswith("airflow_tpu")]
    assert len(own) > 10
    assert [kind.__name__ for kind in own if not issubclass(kind, ReportingOperator)] == []
    methods = {
        f"{kind.__name__}.{name}": method
        for kind in own
        for name, method in vars(kind).items()
        if name.startswith("execute")
    }
    assert [name for name, method in methods.items() if not getattr(method, "reported", False)] == []


@pytest.mark.parametrize(
    "error",
    [errors.ConfigError([FAULT], "the form"), errors.TPUPreempted("gone"), errors.RunFailed("exit 1", 1, "the tail")],
)
def test_error_without_frames_is_still_itself(error: errors.TPUError) -> None:
    """Class, text, details and the decision whether to try again stay; only Airflow's printing changes."""
    quiet = without_frames(error)
    assert isinstance(quiet, type(error))
    assert isinstance(quiet, SystemExit)
    assert (type(quiet).__name__, str(quiet)) == (type(error).__name__, str(error))
    assert {**vars(quiet)} == vars(error)
    again = errors.Retry.NEVER is not error.retry
    decided = retry_policy().evaluate(quiet, try_number=1, max_tries=5).action
    assert decided is (RetryAction.RETRY if again else RetryAction.FAIL)
    assert without_frames(quiet) is quiet


def said(error: BaseException | str, capsys: pytest.CaptureFixture[str]) -> str:
    """What the callback writes at the end of a task's log."""
    context: Any = {"task": TASK, "ti": SimpleNamespace(try_number=1), "exception": error}
    say_failed(context)
    return capsys.readouterr().out


def test_last_line_of_a_wrong_form(capsys: pytest.CaptureFixture[str]) -> None:
    """Several faults stand above the last line, which says what happened, what it costs and what to do."""
    before, _, last = said(errors.ConfigError([FAULT, FAULT], "the form"), capsys).partition("The task check_grant ")
    assert before.count("zone = 'x': is wrong; allowed: a, b") == 2
    assert last.startswith(
        "has failed: the form has 2 fault(s). Nothing was created. It is not tried again. To do: "
        "Correct every field that is named, then trigger again or clear the task. (ConfigError in docs/errors.md)"
    )


def test_log_group_of_airflow_is_closed_first(capsys: pytest.CaptureFixture[str]) -> None:
    """What Airflow writes after a task is folded; the last line, and a tail of several lines, must not be."""
    log = said(errors.RunFailed("exit 1", 1, "the tail\nof the log"), capsys)
    assert log.index("::endgroup::") < log.index("of the log") < log.index("The task check_grant has failed: exit 1.")


def test_one_fault_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    """What fits into the last line is not in a line of its own as well."""
    assert said(errors.ConfigError([FAULT], "the form"), capsys).count("is wrong") == 1


def test_one_fault_is_one_line() -> None:
    """What can be said in one line is."""
    found = last_line(errors.ConfigError([FAULT], "the form", consequence="it is billed"), TASK, True)
    assert found.startswith(
        "The task check_grant has failed: the form: zone = 'x': is wrong; allowed: a, b. It is billed."
    )


@pytest.mark.parametrize(
    ("final", "words"), [(True, "tried as often as allowed; .* clear the task"), (False, "Nothing: ")]
)
def test_last_line_of_a_lost_tpu(final: bool, words: str) -> None:
    """A loss is no work for a person while tries are left; after the last one it is."""
    task = CloudTPUTrainOperator(task_id="train", conf={})
    error = errors.TPUPreempted("node n-1 was preempted", consequence="the lost TPU costs nothing more")
    found = last_line(error, task, final)
    assert found.startswith("The task train has failed: node n-1 was preempted. The lost TPU costs nothing more. It is")
    assert re.search(f"To do: .*{words}", found)


def test_last_line_of_a_script_that_is_tried_again() -> None:
    """While its task has tries left, a person need not do anything."""
    task = CloudTPUTrainOperator(task_id="train", conf={}, retries=1)
    found = last_line(errors.RunFailed("the script ended with exit code 3", 3), task, False)
    assert "It is tried again. To do: Nothing yet. If the last try fails too: Correct the script" in found


def test_last_line_of_a_fault_of_ours() -> None:
    """An error without a class of ours says that it is worth a report, and what it means for the TPU."""
    found = last_line(KeyError("node"), CloudTPUTrainOperator(task_id="train", conf={}), True)
    assert "KeyError: 'node'. The TPU may be alive" in found
    assert "report it with the frames above" in found


def test_last_line_of_a_template_that_cannot_be_rendered() -> None:
    """Airflow renders before our code runs; its error is known, too, and no other try is made."""
    error = jinja2.UndefinedError("'dict object' has no attribute 'sript'")
    assert "correct it in the form or in the DAG" in last_line(error, TASK, True)
    assert retry_policy().evaluate(error, try_number=1, max_tries=5).action is RetryAction.FAIL


def test_task_that_died_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """The DAG processor calls the same callbacks, with a text for an error, for a worker that has died."""
    assert said("heartbeat", capsys) == ""
