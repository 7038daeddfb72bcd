# SPDX-License-Identifier: Apache-2.0
"""Keep the versions of a model and the pointer to the one in use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_tpu.core.model.model import CHAMPION_FORM, MANIFEST_FORM, Champion, ModelManifest
from airflow_tpu.core.model.turn import TURN_FORM, Turn
from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.errors import ConfigError, Fault, ModelBusy
from airflow_tpu.stores.store import Store

if TYPE_CHECKING:
    from airflow_tpu.hooks.artifacts import ArtifactsHook


@dataclass(frozen=True)
class ModelStore(Store):
    """Versions and champion below ``gs://bucket/prefix/models/NAME/``.

    :param model: name under which versions compete.
    """

    model: str

    @property
    def uri(self) -> str:
        """Where everything of this model is."""
        return f"{self.root}/models/{self.model}"

    def champion(self) -> Champion | None:
        """The version in use, None before the first promotion."""
        return self.load(self._champion_uri, CHAMPION_FORM)

    def register(self, manifest: ModelManifest) -> None:
        """Write a version down; writing the same one twice changes nothing.

        :raises ConfigError: another model has this version.
        """
        uri = self._version_uri(manifest.version)
        if self.hook.write_json(uri, MANIFEST_FORM.to_json(manifest), generation=0) is None:
            found = self.manifest(manifest.version)
            if found is None or found.artifacts_uri != manifest.artifacts_uri:
                raise ConfigError([Fault("version", manifest.version, f"is taken at {uri}")], f"model {self.model}")

    def manifest(self, version: str) -> ModelManifest | None:
        """A version, None if it is not (or no longer) there."""
        return self.load(self._version_uri(version), MANIFEST_FORM)

    def versions(self) -> list[str]:
        """Every version, newest first."""
        names = [info.name for info in self.hook.listing(f"{self.uri}/versions/")]
        return sorted((Path(name).stem for name in names), reverse=True)

    def replace(self, decide: Callable[[Champion | None], Champion | None]) -> Champion | None:
        """Replace the pointer in one atomic step.

        :param decide: from the champion now to the next one, None to leave it; asked again after a lost race.
        :return: the new champion, None if it was left.
        :raises TransientError: others were faster each time.
        """
        return self.change(self._champion_uri, CHAMPION_FORM, decide)

    def take_turn(self, mine: Turn, is_over: Callable[[Turn], bool]) -> None:
        """Take the turn to train this model, in one atomic step; a run that has it keeps it.

        :param mine: of the run that wants it.
        :param is_over: whether the turn of another run has ended.
        :raises ModelBusy: another run has it.
        """

        def decide(held: Turn | None) -> Turn:
            if held is not None and not held.is_of(mine) and not is_over(held):
                raise ModelBusy(
                    f"{held} trains the model {self.model}; this run waits until that one is over, or until "
                    f"{held.until:%Y-%m-%d %H:%M} UTC at the latest"
                )
            return mine

        self.change(f"{self.uri}/turn.json", TURN_FORM, decide)

    def prune(self, keep: int) -> list[ModelManifest]:
        """Forget the oldest versions, never the champion nor what a rollback may go back to first.

        A manifest of another release is logged and stays.

        :param keep: how many versions stay, 0 for all.
        :return: what was forgotten; its artifacts are still there.
        """
        champion = self.champion()
        safe = {champion.version, *champion.history[:1]} if champion else set()
        surplus = [version for version in self.versions()[keep:] if version not in safe] if keep else []
        names = [self._version_uri(version).removeprefix("gs://").partition("/")[2] for version in surplus]
        forgotten = list(self.contents(names, MANIFEST_FORM.from_json).values)
        for manifest in forgotten:
            self.hook.remove(self._version_uri(manifest.version))
        return forgotten

    def remove_run(self, manifest: ModelManifest) -> tuple[int, int]:
        """Remove everything of the training that made a version: its attempts and its checkpoints.

        :return: objects and bytes removed; nothing if the manifest's place is not named after its run.
        """
        run_uri = manifest.artifacts_uri.rpartition("/")[0]
        airflow, dag_id, run_id = (str(manifest.origin.get(part)) for part in ("airflow", "dag_id", "run_id"))
        key = RunKey(airflow, dag_id, run_id)
        if not key.has_sibling(run_uri.rpartition("/")[2]):  # a manifest from a bucket may say anything
            return 0, 0
        bucket = run_uri.removeprefix("gs://").partition("/")[0]
        found = self.hook.listing(f"{run_uri}/")
        for info in found:
            self.hook.remove(f"gs://{bucket}/{info.name}")
        return len(found), sum(info.size for info in found)

    @property
    def _champion_uri(self) -> str:
        return f"{self.uri}/champion.json"

    def _version_uri(self, version: str) -> str:
        return f"{self.uri}/versions/{version}.json"


def versions_by_model(hook: ArtifactsHook, root: str) -> dict[str, int]:
    """How many versions of each model are kept.

    :param hook: Cloud Storage.
    :param root: ``gs://bucket/prefix`` of the grant.
    """
    paths = (info.name.split("/") for info in hook.listing(f"{root}/models/"))
    return dict(Counter(path[-3] for path in paths if len(path) > 2 and path[-2] == "versions"))
