# SPDX-License-Identifier: Apache-2.0
"""One attempt of the run: resume, train, save, stop when asked, finish."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from digits_parts.training import Trainer, history_bytes
from trc.checkpoint import Checkpoint, CheckpointStore
from trc.contract import (
    EXIT_STOPPED,
    EXIT_STOPPED_LOSING_WORK,
    EXIT_STORAGE,
    Contract,
    ContractExit,
    StopRequest,
)
from trc.report import Reporter, write_atomically

# A signal is noticed only between two calls of the graph, so a call may not take longer than this (seconds).
LONGEST_CALL = 1.0
SECONDS_BETWEEN_LINES = 1.0


@dataclass(frozen=True)
class SaveSchedule:
    """When to save: after so many steps, or so many seconds, whichever comes first. 0 means never for that reason."""

    every_steps: int
    every_seconds: float


@dataclass(frozen=True)
class AttemptContext:
    """The directories, requests and reports of an attempt.

    :param contract: directories and attempt.
    :param stop: read before every call of the graph.
    :param reporter: of progress and result.
    :param say: prints one line.
    :param clock: monotonic seconds.
    """

    contract: Contract
    stop: StopRequest
    reporter: Reporter
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic


class Attempt:
    """Trains from the newest whole checkpoint to the last step.

    :param trainer: model and data.
    :param store: checkpoints.
    :param schedule: when to save.
    :param context: directories, requests and reports.
    """

    def __init__(
        self, trainer: Trainer, store: CheckpointStore, schedule: SaveSchedule, context: AttemptContext
    ) -> None:
        self._trainer = trainer
        self._store = store
        self._schedule = schedule
        self._context = context
        self._durable_step = 0
        self._saved_at = context.clock()
        self._meter = _Meter(context.clock)
        self._history = _History(context.contract)

    def resume(self, found: Checkpoint | None) -> None:
        """Continue from a checkpoint, or start at step 0."""
        if found is not None:
            self._trainer.restore(found.directory)
            self._durable_step = found.step
            self._context.say(f"resuming from step {found.step} (attempt {found.attempt} saved it: {found.reason})")
        self._history.start(self._trainer.history)

    def train(self) -> None:
        """Train to the last step and make it durable.

        :raises ContractExit: 75 or 76 when asked to stop, 74 if nothing can be saved, 70 if the loss is not finite.
        """
        total = self._trainer.settings.steps
        call = 1
        self._report("compiling")
        while self._trainer.step < total:
            self.stop_if_asked()
            started = self._context.clock()
            loss, accuracy = self._trainer.advance(self._limit(call))
            call = next_call(call, self._context.clock() - started)
            self._after_call(loss, accuracy)
        if self._durable_step < total:
            self._save("final")
        self._report("exporting")

    def stop_if_asked(self) -> None:
        """Make the work durable and end the attempt, if that was requested.

        :raises ContractExit: 75, or 76 if saving failed.
        """
        reason = self._context.stop.reason
        if not reason:
            return
        step = self._trainer.step
        self._context.say(f"asked to stop by {reason} at step {step}")
        self._report("stopping")
        try:
            if step > self._durable_step:
                self._save("signal")
        except ContractExit as error:
            lost = f"{step - self._durable_step} steps are lost: {error}"
            raise ContractExit(EXIT_STOPPED_LOSING_WORK, f"stopped on request, but {lost}") from error
        self._report("stopping")  # again: last_durable_step has changed
        raise ContractExit(EXIT_STOPPED, f"stopped on request; step {self._durable_step} is durable")

    def _limit(self, call: int) -> int:
        """Shorten a call so that it ends where a row or a checkpoint is due."""
        step, settings, every = self._trainer.step, self._trainer.settings, self._schedule.every_steps
        ends = [settings.steps, (step // settings.eval_every + 1) * settings.eval_every]
        if every:
            ends.append((step // every + 1) * every)
        return min(call, *(end - step for end in ends))

    def _after_call(self, loss: float, accuracy: float) -> None:
        step, settings = self._trainer.step, self._trainer.settings
        measured = {"loss": round(loss, 6), "accuracy": round(accuracy, 6), **self._meter.measure(step, settings.steps)}
        is_last = step == settings.steps
        if self._meter.is_line_due() or is_last:
            self._context.say(progress_line(step, settings.steps, measured))
        if step % settings.eval_every == 0 or is_last:
            self._history.add(self._trainer.close_row())
        if self._is_save_due():
            self._save("periodic")
        self._report("training", **measured)

    def _is_save_due(self) -> bool:
        step, every, seconds = self._trainer.step, self._schedule.every_steps, self._schedule.every_seconds
        if step == self._trainer.settings.steps:
            return False  # the final checkpoint follows at once
        due_by_time = seconds > 0 and self._context.clock() - self._saved_at >= seconds
        return due_by_time or (every > 0 and step % every == 0)

    def _save(self, reason: str) -> None:
        self._report("saving")
        try:
            self._store.commit(self._trainer.step, self._trainer.save, reason)
        except OSError as error:
            raise ContractExit(EXIT_STORAGE, f"cannot save step {self._trainer.step}: {error}") from error
        self._durable_step = self._trainer.step
        self._saved_at = self._context.clock()

    def _report(self, state: str, **values: float) -> None:
        place = {"step": self._trainer.step, "total_steps": self._trainer.settings.steps}
        self._context.reporter.progress(state, **place, last_durable_step=self._durable_step, **values)


def next_call(steps: int, seconds: float) -> int:
    """Return the number of steps of the next call: at most twice as many, and no more than fit the longest call.

    :param steps: done by the last call.
    :param seconds: it took. The first one includes compiling, so growth starts slowly and catches up.
    """
    return max(1, min(2 * steps, int(steps * LONGEST_CALL / max(seconds, 1e-6))))


def progress_line(step: int, total: int, measured: Mapping[str, float]) -> str:
    """One line of the log."""
    line = f"step {step:>{len(str(total))}}/{total}  loss {measured['loss']:.4f}  accuracy {measured['accuracy']:.4f}"
    if "steps_per_second" not in measured:
        return f"{line}  (compiled)"
    return f"{line}  {measured['steps_per_second']:.0f} steps/s  {measured['eta_seconds']:.0f} s left"


class _Meter:
    """Steps per second since the first call, which compiled and says nothing about the rate."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._first: tuple[float, int] | None = None
        self._line_at = clock()

    def measure(self, step: int, total: int) -> dict[str, float]:
        now = self._clock()
        if self._first is None:
            self._first = (now, step)
        seconds, steps = now - self._first[0], step - self._first[1]
        if steps <= 0 or seconds <= 0:
            return {}
        rate = steps / seconds
        return {"steps_per_second": round(rate, 3), "eta_seconds": round((total - step) / rate, 3)}

    def is_line_due(self) -> bool:
        if self._clock() - self._line_at < SECONDS_BETWEEN_LINES:
            return False
        self._line_at = self._clock()
        return True


class _History:
    """``metrics.jsonl`` and the TensorBoard events, both complete after every resume.

    The events stay on the local disk: written to a bucket, every flush would upload the whole file again.
    """

    def __init__(self, contract: Contract) -> None:
        self._path = contract.output_dir / "metrics.jsonl"
        self._events = contract.output_dir / "tensorboard"
        self._writers: dict[str, Any] = {}

    def start(self, rows: list[dict[str, Any]]) -> None:
        """Replace what an earlier attempt left, which may be ahead of the checkpoint or end in half a row."""
        write_atomically(self._path, history_bytes(rows))
        shutil.rmtree(self._events, ignore_errors=True)
        self._emit(rows)

    def add(self, rows: list[Mapping[str, Any]]) -> None:
        with self._path.open("ab") as file:
            file.write(history_bytes([dict(row) for row in rows]))
        self._emit(rows)

    def _emit(self, rows: list[Any]) -> None:
        for row in rows:
            split = row["split"]
            if split not in self._writers:
                self._writers[split] = tf.summary.create_file_writer(str(self._events / split))
            with self._writers[split].as_default():
                for name in ("loss", "accuracy"):
                    tf.summary.scalar(name, row[name], step=row["step"])
        for writer in self._writers.values():
            writer.flush()
