# SPDX-License-Identifier: Apache-2.0
"""Which commit a name means."""

from __future__ import annotations

from airflow_tpu.core.request.references.source_address import GitAddress
from airflow_tpu.core.source.refs import Resolved, parse_refs, resolve
from airflow_tpu.errors import Fault

A, B, C, D = ("a" * 40, "b" * 40, "c" * 40, "d" * 40)
LISTING = "\n".join(
    f"{commit}\t{name}"
    for commit, name in (
        (A, "HEAD"),
        (A, "refs/heads/main"),
        (B, "refs/heads/v1"),
        (C, "refs/tags/v1"),
        (D, "refs/tags/v1^{}"),
        (B, "refs/pull/7/head"),
    )
)


def test_names() -> None:
    """The default branch, a branch, an annotated tag before a branch of its name, a full name, a short commit."""
    refs = parse_refs(LISTING)
    for ref, found in (
        ("", Resolved(A, "HEAD")),
        ("main", Resolved(A, "refs/heads/main")),
        ("v1", Resolved(D, "refs/tags/v1")),
        ("refs/heads/v1", Resolved(B, "refs/heads/v1")),
        ("pull/7/head", Resolved(B, "refs/pull/7/head")),
        ("aaaaaaa", Resolved(A)),
        ("e" * 40, Resolved("e" * 40)),
    ):
        assert resolve(GitAddress("https://h/x", ref), refs) == found, ref


def test_faults() -> None:
    """An empty repository, a name that is not there, a commit that is no end of anything."""
    assert "is an empty repository" in str(resolve(GitAddress("https://h/x"), {}))
    wrong = resolve(GitAddress("https://h/x", "mian"), parse_refs(LISTING))
    assert isinstance(wrong, Fault)
    assert wrong.nearest == "main"
    assert "give all 40 digits" in str(resolve(GitAddress("https://h/x", "1234567"), parse_refs(LISTING)))
