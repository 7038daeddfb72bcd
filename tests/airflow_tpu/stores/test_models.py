# SPDX-License-Identifier: Apache-2.0
"""Versions and the champion in a real bucket: written once, replaced in one step, pruned with care."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from airflow_tpu.core.model.model import Champion, Decision, ModelManifest
from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.errors import ConfigError
from airflow_tpu.lifecycle.training.model_version import data_objects, revision
from airflow_tpu.stores.models import ModelStore
from tests.airflow_tpu.cloud_env import BUCKET, ROOT, CloudEnv
from tests.airflow_tpu.identities import AIRFLOW

NAMES = [f"2026112{day}T021500Z-{day}" for day in range(5)]
RUNS = f"gs://{BUCKET}/trc/runs"


def manifest(version: str, **origin: Any) -> ModelManifest:
    """A version as one run has made it."""
    key = RunKey(AIRFLOW, "nightly", version)
    origin = {"airflow": AIRFLOW, "dag_id": "nightly", "run_id": version, **origin}
    return ModelManifest("digits", version, "", f"{RUNS}/{key.name}/attempt-1", "f", {}, origin)


@pytest.fixture
def store(env: CloudEnv) -> ModelStore:
    """An empty store."""
    return ModelStore(env.storage, ROOT, "digits")


def crown(store: ModelStore, version: str) -> Champion | None:
    """Make a version the champion."""
    chosen = manifest(version)
    return store.replace(lambda now: Champion.crown(chosen, Decision(True, ""), "", now.line if now else ()))


def test_version_is_written_once(store: ModelStore) -> None:
    """A second try finds its own version; another run cannot take it."""
    store.register(manifest(NAMES[0]))
    store.register(manifest(NAMES[0]))
    with pytest.raises(ConfigError, match="is taken"):
        store.register(ModelManifest("digits", NAMES[0], "", "gs://elsewhere/x/attempt-1", "f", {}))
    assert store.versions() == [NAMES[0]]


def test_pointer_is_replaced_in_one_step(store: ModelStore) -> None:
    """Of three promotions at once none is lost: every former champion is in the line."""
    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(lambda number: crown(store, f"v{number}"), range(3)))
    champion = store.champion()
    assert champion is not None
    assert all(done)
    assert sorted(champion.line) == ["v0", "v1", "v2"]


def test_old_versions_are_forgotten_but_never_the_champion(store: ModelStore) -> None:
    """The newest stay, and of the old ones the champion and the one before it."""
    for version in NAMES:
        store.register(manifest(version))
    crown(store, NAMES[0])
    crown(store, NAMES[1])
    assert [one.version for one in store.prune(2)] == [NAMES[2]]
    assert store.versions() == [NAMES[4], NAMES[3], NAMES[1], NAMES[0]]
    assert store.prune(0) == []


def test_artifacts_of_a_forgotten_version_are_removed_with_its_checkpoints(store: ModelStore, env: CloudEnv) -> None:
    """Everything of that run goes, a run whose name begins alike stays."""
    one = manifest(NAMES[0])
    run = one.artifacts_uri.rpartition("/")[0]
    for uri in (f"{run}/attempt-1/output/model.json", f"{run}/checkpoints/c.json", f"{run}0/attempt-1/model.json"):
        env.storage.write_json(uri, {})
    assert store.remove_run(one)[0] == 2
    assert [info.name for info in env.storage.listing(RUNS)] == [
        f"{run}0/attempt-1/model.json".removeprefix(f"gs://{BUCKET}/")
    ]


def test_manifest_that_points_elsewhere_removes_nothing(store: ModelStore, env: CloudEnv) -> None:
    """A manifest in a bucket is untrusted."""
    env.storage.write_json(f"{RUNS}/precious/attempt-1/model.json", {})
    forged = ModelManifest("digits", "v", "", f"{RUNS}/precious/attempt-1", "f", {}, {"dag_id": "d", "run_id": "r"})
    assert store.remove_run(forged) == (0, 0)
    assert len(env.storage.listing(RUNS)) == 1


def test_data_set_is_an_object_or_what_is_below_a_prefix(env: CloudEnv) -> None:
    """A neighbour whose name begins alike is no part of it, and nothing at all is an error."""
    for name in ("data/a", "data/b", "data2/c"):
        env.storage.write_json(f"gs://{BUCKET}/{name}", {})
    assert [one.name for one in data_objects(env.storage, f"gs://{BUCKET}/data")] == ["data/a", "data/b"]
    assert [one.name for one in data_objects(env.storage, f"gs://{BUCKET}/data2/c")] == ["data2/c"]
    assert data_objects(env.storage, "") == []
    with pytest.raises(ConfigError, match="names no object"):
        data_objects(env.storage, f"gs://{BUCKET}/dat")


def test_revision_of_a_checkout(tmp_path: Path) -> None:
    """The commit is found from below, on a branch, packed or detached; without a repository it is empty."""
    git, include = tmp_path / ".git", tmp_path / "include"
    (git / "refs" / "heads").mkdir(parents=True)
    include.mkdir()
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "packed-refs").write_text("# pack-refs\n" + "b" * 40 + " refs/heads/main\n")
    assert revision(include) == "b" * 40
    (git / "refs" / "heads" / "main").write_text("a" * 40 + "\n")
    assert revision(include) == "a" * 40
    (git / "HEAD").write_text("c" * 40 + "\n")
    assert revision(include) == "c" * 40
    (git / "HEAD").unlink()
    assert revision(include) == ""
