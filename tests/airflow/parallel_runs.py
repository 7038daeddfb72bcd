# SPDX-License-Identifier: Apache-2.0
"""Many stories at once in one Airflow: it takes a minute to start, and a story mostly waits."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from localcloud.testing import BackgroundCloud
from tests.airflow.runs import TrainingRun
from tests.airflow.stack import Stack

Act = Callable[[TrainingRun], None]


@dataclass
class ParallelRuns:
    """Runs of DAGs side by side, each driven by a thread of its own.

    :param stack: Airflow.
    :param cloud: the local cloud.
    :param pool: a thread for each story.
    """

    stack: Stack
    cloud: BackgroundCloud
    pool: ThreadPoolExecutor
    _playing: dict[str, Future[None]] = field(default_factory=dict)

    def new(self, dag: str, name: str) -> TrainingRun:
        """A run that has not been triggered yet."""
        return TrainingRun(self.stack, self.stack.client(), self.cloud, dag, name)

    def begin(self, name: str, dag: str, act: Act) -> None:
        """Begin a story in a thread of its own."""
        self._playing[name] = self.pool.submit(act, self.new(dag, name.removeprefix("test_").replace("_", "-")))

    def end(self, name: str) -> None:
        """Wait for the end of a story.

        :raises AssertionError: it has not gone as it should.
        """
        self._playing[name].result()

    def quiet(self) -> None:
        """Wait until no story is running."""
        for playing in self._playing.values():
            playing.exception()


def together(dag: str) -> Callable[[Act], Callable[[ParallelRuns], None]]:
    """Make a test of a story, which begins with all the others of its kind.

    :param dag: id of the DAG whose run it is about.
    """

    def decorate(act: Act) -> Callable[[ParallelRuns], None]:
        def test(runs: ParallelRuns) -> None:
            runs.end(act.__name__)

        functools.update_wrapper(test, act, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
        del test.__wrapped__  # type: ignore[attr-defined]  # pytest would look there for the fixtures
        test.story = (dag, act)  # type: ignore[attr-defined]
        return test

    return decorate
