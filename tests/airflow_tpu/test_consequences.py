# SPDX-License-Identifier: Apache-2.0
"""What an error means for the TPU is stated by the code that knows, and reaches the reader of the message."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime

import pytest

from airflow_tpu import errors
from airflow_tpu.consequences import DELETED, LOST, MAY_BE_CREATED, MAY_LIVE, NOTHING_CREATED, stated
from airflow_tpu.core.run.trigger_context import error_event, raise_for
from airflow_tpu.core.tpu.api_errors import classify
from airflow_tpu.retry import leaves
from scripts.errors_page import SAID

FAULT = errors.Fault("zone", "us", "is no zone", ("us-central1-f",), "us-central1-f")
SEEN = datetime(2026, 11, 28, 3, 4, tzinfo=UTC)
ERRORS: list[errors.TPUError] = [
    errors.ConfigError([FAULT, errors.Fault("seed", None, "is null")], "the trigger form"),
    errors.GrantExpired([errors.Fault("days", object(), "is over")], "the grant file"),
    errors.StockOut("no capacity", "STOCKOUT"),
    errors.TPUPreempted("taken away", SEEN),
    errors.TPULost("lost"),
    errors.RunFailed("it failed", 3, "Traceback\nlast line"),
    errors.LeaseLost("a newer attempt has it"),
]


def through_trigger(error: errors.TPUError) -> errors.TPUError:
    """The error as the task sees it that a trigger met."""
    with pytest.raises(type(error)) as caught:
        raise_for(error_event(error))
    return caught.value


def ids(error: errors.TPUError) -> str:
    """A test case by its class."""
    return type(error).__name__


@pytest.mark.parametrize("kind", list(leaves()), ids=lambda kind: kind.__name__)
def test_no_error_has_a_consequence_of_its_own(kind: type[errors.TPUError]) -> None:
    """The same class is raised before a TPU is asked for, while one trains and in the command line."""
    error = kind([FAULT]) if issubclass(kind, errors.ConfigError) else kind("text")
    assert error.consequence == ""
    assert "created" not in str(error)


@pytest.mark.parametrize("error", ERRORS, ids=ids)
def test_consequence_is_in_the_message(error: errors.TPUError) -> None:
    """It ends the sentence, before the faults or the log's last lines."""
    with pytest.raises(type(error)) as caught, stated(LOST):
        raise through_trigger(error)
    assert str(caught.value).split("\n")[0].rstrip(":.").endswith(f"; {LOST}")
    assert str(caught.value).split("\n")[1:] == str(through_trigger(error)).split("\n")[1:]


def test_innermost_statement_stays() -> None:
    """The call that was refused knows more than the task around it."""
    with pytest.raises(errors.AccessDenied) as caught, stated(MAY_LIVE), stated(NOTHING_CREATED):
        raise errors.AccessDenied("no role")
    assert caught.value.consequence == NOTHING_CREATED


def test_statement_may_be_for_some_errors_only() -> None:
    """A lost answer of a create leaves its outcome open; a refusal does not."""
    for error, expected in ((errors.TransientError("x"), MAY_BE_CREATED), (errors.QuotaZero("x"), NOTHING_CREATED)):
        with (
            pytest.raises(type(error)) as caught,
            stated(NOTHING_CREATED),
            stated(MAY_BE_CREATED, errors.TransientError),
        ):
            raise error
        assert caught.value.consequence == expected


def test_other_exceptions_pass_untouched() -> None:
    """A bug, or Airflow's own deferral, is no error of the tree."""
    with pytest.raises(ZeroDivisionError), stated(MAY_LIVE):
        _ = 1 / 0


@pytest.mark.parametrize("error", ERRORS, ids=ids)
@pytest.mark.parametrize("consequence", ["", DELETED])
def test_error_crosses_a_trigger_whole(error: errors.TPUError, consequence: str) -> None:
    """Faults, consequence, exit status and the instant of a loss are the same in the task as in the trigger."""
    with stated(consequence), pytest.raises(type(error)) as caught:
        raise through_trigger(error)
    found = caught.value
    found.consequence = consequence
    again = through_trigger(found)
    assert str(again) == str(found)
    assert {**vars(again), "faults": None} == {**vars(found), "faults": None}


@pytest.mark.parametrize("error", ERRORS, ids=ids)
def test_error_crosses_a_process(error: errors.TPUError) -> None:
    """Airflow's supervisor may pickle an exception; the text is the same after it."""
    error = through_trigger(error)
    error.consequence = MAY_LIVE
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (type(error), str(error))


def test_answer_of_the_api_claims_nothing_by_itself() -> None:
    """The same refusal answers a create, a list and a delete: only the create knows that nothing was created."""
    assert [said for said in SAID if "created" in str(classify(*said)).replace(said[1], "").lower()] == []
