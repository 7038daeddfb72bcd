"""What an error means for the TPU: stated by the code that knows whether there is one.

The code that finds a wrong field is the same before a TPU is asked for, while one trains, and in the command line. So
an error has no consequence of its own: the call or the task that it ends states it, and the innermost statement stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow_tpu.errors import TPUError

NOTHING_CREATED = "nothing was created"
MAY_BE_CREATED = "the TPU may have been created: the next try looks for it, and the reaper deletes it after the run"
MAY_LIVE = "the TPU may be alive: the task delete deletes it, and the reaper if that fails"
BEING_DELETED = "what this attempt asked for is being deleted"
LOST = "the lost TPU costs nothing more"
DELETE_PENDING = "the TPU may be alive: this task tries again, then the reaper deletes it"
DELETED = "the TPU is deleted"
BILLED = "it is billed until it is deleted"


@contextmanager
def stated(consequence: str, kind: type[TPUError] = TPUError) -> Iterator[None]:
    """State the consequence of every error that leaves the block, or the decorated function, without one.

    :param consequence: one of the sentences above.
    :param kind: errors that have it.
    """
    try:
        yield
    except kind as error:
        error.consequence = error.consequence or consequence
        raise
