# SPDX-License-Identifier: Apache-2.0
"""What the stores of a grant share: objects below one prefix, read by their form and replaced at their generation."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar, overload

from airflow_tpu.clients.clock import WALL, Clock
from airflow_tpu.core.backoff import ExponentialBackoff
from airflow_tpu.core.json_form import WRITERS
from airflow_tpu.errors import TransientError, UnreadableObject
from airflow_tpu.stores.documents import Document, content_of, reader
from airflow_tpu.stores.parallel_reads import read_many

if TYPE_CHECKING:
    from airflow_tpu.core.json_form import StoredForm
    from airflow_tpu.hooks.artifacts import ArtifactsHook, StoredJSON

T = TypeVar("T")
log = logging.getLogger(__name__)

LONGEST_PAUSE = 4.0
"""Seconds between two tries at the most; Cloud Storage takes about one write a second to one object."""


_MARKS, _MARK_LENGTH = 64, 12
"""How many writes an object remembers: about a minute of them, far longer than until a lost answer is noticed."""


class _Overtaken(Exception):
    """Another writer was faster."""


@dataclass(frozen=True)
class Contents(Generic[T]):
    """What a folder holds.

    :param values: what this release reads, in the order of the names.
    :param unknown: names of the objects that cannot be read, damaged or of another release, with the reason. Each has
        been logged: the runs and TPUs that they are about are unknown, not forgotten.
    """

    values: Sequence[T]
    unknown: Mapping[str, UnreadableObject] = field(default_factory=dict)


def _writers(found: StoredJSON | None) -> list[str]:
    marks = found.data.get(WRITERS) if found is not None and isinstance(found.data, dict) else None
    return [mark for mark in marks if isinstance(mark, str)] if isinstance(marks, list) else []


@dataclass(frozen=True)
class Store:
    """Objects below ``gs://bucket/prefix``.

    :param hook: Cloud Storage.
    :param root: ``gs://bucket/prefix`` of the grant.
    :param clock: where the store takes the time from.
    :param tries: how often a change is tried while others are faster.
    :param pause: seconds before the first repetition, on average half of it; it doubles.
    """

    hook: ArtifactsHook
    root: str
    clock: Clock = field(default=WALL, kw_only=True)
    tries: int = field(default=12, kw_only=True)
    pause: float = field(default=0.1, kw_only=True)

    def names(self, prefix: str) -> list[str]:
        """Names, without the bucket, of the objects below ``root/prefix``."""
        return [info.name for info in self.hook.listing(f"{self.root}/{prefix}")]

    def load(self, uri: str, form: StoredForm[T]) -> T | None:
        """Read an object, None when there is none.

        :raises UnknownVersion: another release has written it.
        :raises TPUError: it is damaged, as its form says.
        """
        return self._at_generation(uri, form)[0]

    def contents(self, names: Iterable[str], read: Callable[[object, str], T]) -> Contents[T]:
        """Read objects by their names, in that order; one that has gone since the listing is left out.

        :param read: from content and name, as :meth:`airflow_tpu.core.json_form.StoredForm.from_json`.
        """
        values: list[T] = []
        unknown: dict[str, UnreadableObject] = {}
        for name, found in self._documents(names):
            try:
                values.append(read(content_of(found, name), name))
            except UnreadableObject as error:
                log.error("%s. What it is about is left as it is; repair the object, or remove it", error)
                unknown[name] = error
        return Contents(values, unknown)

    @overload
    def change(self, uri: str, form: StoredForm[T], decide: Callable[[T | None], T]) -> T: ...

    @overload
    def change(self, uri: str, form: StoredForm[T], decide: Callable[[T | None], T | None]) -> T | None: ...

    def change(self, uri: str, form: StoredForm[T], decide: Callable[[T | None], T | None]) -> T | None:
        """Replace an object by what is decided from it, atomically: the one compare-and-swap.

        :param form: how the object is stored.
        :param decide: from the object now, None if there is none, to the wanted one. None or an equal one leaves it as
            it is. Asked again after a lost race; what it raises ends the change.
        :return: what was decided.
        :raises TransientError: others were faster each time.
        :raises UnknownVersion: another release has written it.
        """
        from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_attempt

        pauses = ExponentialBackoff(self.pause, LONGEST_PAUSE, jitter=1.0).strategy
        again = retry_if_exception_type(_Overtaken)
        tries = Retrying(retry=again, wait=pauses, stop=stop_after_attempt(self.tries), sleep=self.clock.sleep)

        written: dict[str, T] = {}

        def once() -> T | None:
            found = self._stored(uri, form)
            current = None if found is None else form.from_json(found.data, uri)
            writers = _writers(found)
            for mark in written.keys() & set(writers):
                return written[mark]  # its answer was lost, and others have changed the object since
            wanted = decide(current)
            if wanted is None or wanted == current:
                return wanted
            mark = uuid.uuid4().hex[:_MARK_LENGTH]
            written[mark] = wanted
            content = {**form.to_json(wanted), WRITERS: [mark, *writers][:_MARKS]}
            if self.hook.write_json(uri, content, 0 if found is None else found.generation) is None:
                raise _Overtaken
            return wanted

        try:
            return tries(once)
        except RetryError as error:
            raise TransientError(f"{uri} was written by others {self.tries} times in a row; try again") from error

    def _at_generation(self, uri: str, form: StoredForm[T]) -> tuple[T | None, int]:
        found = self._stored(uri, form)
        return (None, 0) if found is None else (form.from_json(found.data, uri), found.generation)

    def _stored(self, uri: str, form: StoredForm[T]) -> StoredJSON | None:
        try:
            return self.hook.read_json(uri)
        except ValueError as error:
            raise form.damaged(f"{uri} is not JSON ({error})") from error

    def _documents(self, names: Iterable[str]) -> Iterator[tuple[str, Document]]:
        bucket = self.root.removeprefix("gs://").partition("/")[0]
        wanted = list(names)
        found = read_many(reader(self.hook), [f"gs://{bucket}/{name}" for name in wanted], self.clock)
        return ((name, stored) for name, stored in zip(wanted, found, strict=True) if stored is not None)
