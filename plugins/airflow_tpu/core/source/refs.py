# SPDX-License-Identifier: Apache-2.0
"""Which commit a branch or a tag of a git repository names, by the list that its server gives."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_tpu.core.request.references.source_address import GitAddress
from airflow_tpu.errors import Fault

HEAD = "HEAD"
_ABBREVIATED = re.compile(r"[0-9a-f]{7,39}")
_SHOWN = 12  # names in a message


@dataclass(frozen=True)
class Resolved:
    """One commit.

    :param commit: its 40 hexadecimal digits.
    :param name: reference that named it: ``refs/heads/main``; empty if the address itself named the commit.
    """

    commit: str
    name: str = ""


def parse_refs(listing: str) -> dict[str, str]:
    """Read the output of ``git ls-remote``: commits by the full name of their reference.

    An annotated tag is an object of its own; the commit that it stands for is listed below its name with ``^{}``.
    """
    found: dict[str, str] = {}
    for line in listing.splitlines():
        commit, _, name = line.partition("\t")
        found[name.removesuffix("^{}")] = commit  # the peeled line follows the tag's own
    return found


def resolve(address: GitAddress, refs: Mapping[str, str]) -> Resolved | Fault:
    """Return the commit that an address names, or what is wrong with it, with the names that are nearest.

    :param refs: of :func:`parse_refs`.
    """
    ref = address.ref
    if address.commit:
        return Resolved(address.commit)
    candidates = (ref, f"refs/tags/{ref}", f"refs/heads/{ref}", f"refs/{ref}") if ref else (HEAD,)
    for name in candidates:
        if name in refs:
            return Resolved(refs[name], name)
    if not refs:
        return Fault("source", str(address), "is an empty repository")
    names = _short_names(refs)
    if _ABBREVIATED.fullmatch(ref):
        return _abbreviated(address, refs)
    if not ref:
        return Fault("source", str(address), "has no default branch; name one after '@'", names[:_SHOWN])
    near = difflib.get_close_matches(ref, names, n=_SHOWN, cutoff=0.4)
    shown = tuple(near or names[:_SHOWN])
    return Fault("source", str(address), f"has no branch, tag or commit {ref!r}", shown, shown[0] if near else None)


def _abbreviated(address: GitAddress, refs: Mapping[str, str]) -> Resolved | Fault:
    """A server resolves no abbreviated commit; it may be the end of a branch or a tag."""
    found = {commit for commit in refs.values() if commit.startswith(address.ref)}
    if len(found) == 1:
        return Resolved(found.pop())
    problem = f"names {address.ref!r}: give all 40 digits of a commit that is not the last one of a branch or a tag"
    return Fault("source", str(address), problem)


def _short_names(refs: Mapping[str, str]) -> tuple[str, ...]:
    prefixes = ("refs/heads/", "refs/tags/")
    return tuple(name.removeprefix(prefix) for prefix in prefixes for name in refs if name.startswith(prefix))
