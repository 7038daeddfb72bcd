# SPDX-License-Identifier: Apache-2.0
"""Keep what a bucket knows of the Airflows that use it: their names, and what their first starts have settled on."""

from __future__ import annotations

from dataclasses import dataclass, replace

from airflow_tpu.core.tpu.identity import CHOICE_FORM, KNOWN_AIRFLOW_FORM, FirstChoice, KnownAirflow
from airflow_tpu.stores.store import Store


@dataclass(frozen=True)
class AirflowStore(Store):
    """Names below ``airflows/`` and choices below ``first-starts/`` of what the Airflows of a bucket share."""

    def settle(self, candidate: str, choice: str) -> str:
        """Write a choice under a candidate, unless one stands there.

        :return: what stands there from now on.
        :raises TransientError: others wrote the object each time.
        """
        uri = f"{self.root}/first-starts/{candidate}.json"
        standing: FirstChoice = self.change(uri, CHOICE_FORM, lambda current: current or FirstChoice(choice))
        return standing.identity

    def introduce(self, identity: str, name: str, address: str) -> KnownAirflow | None:
        """Write down the name of an Airflow.

        :return: how it was known until now, None if it was not.
        """
        before: list[KnownAirflow | None] = []

        def named(current: KnownAirflow | None) -> KnownAirflow:
            before.append(current)
            known = current or KnownAirflow(identity, name, address, self.clock.now())
            return replace(known, name=name, address=address)

        self.change(f"{self.root}/airflows/{identity}.json", KNOWN_AIRFLOW_FORM, named)
        return before[-1]

    def known(self) -> dict[str, KnownAirflow]:
        """Every Airflow that the bucket knows, by identity; names of other releases are logged and left out."""
        found = self.contents(self.names("airflows/"), KNOWN_AIRFLOW_FORM.from_json)
        return {airflow.identity: airflow for airflow in found.values}
