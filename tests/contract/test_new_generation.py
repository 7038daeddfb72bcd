# SPDX-License-Identifier: Apache-2.0
"""A generation that is new to the tables of the catalogue is known everywhere, and nothing else had to change."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml
from google.auth.credentials import AnonymousCredentials

from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.clients.tpu_calls import APIEndpoint
from airflow_tpu.clients.tpu_messages import Stamp
from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.grant.authorize import Permit, authorize
from airflow_tpu.core.grant.create_request import Request
from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.core.grant.inventory import Inventory
from airflow_tpu.core.letter.grant_file import Facts, grant_of, grant_text
from airflow_tpu.core.letter.letter import read_letter
from airflow_tpu.core.request.run_conf import RunConf
from airflow_tpu.core.tpu.resource_name import node_name
from airflow_tpu.core.tpu.spec import Phase, Tier, TPUSpec, TPUView
from airflow_tpu.errors import GrantViolation
from airflow_tpu.lifecycle.project_snapshot import take_snapshot
from airflow_tpu.params import train_params
from airflow_tpu.stores.grants import load_catalogue
from localcloud.rules.settings import Latencies, Settings
from localcloud.server import LocalCloudConfig
from localcloud.testing import BackgroundCloud, eventually_async
from scripts import types_page
from tests.airflow_tpu.cloud_env import FORM, INCLUDE

ZONE = "us-east1-d"
SOURCE = "an announcement,2026-11-28"
ROWS = {
    "generations.csv": f"v9x,v9xlite,1,8,v9,TPUV9X*,TPUV9X*Pod,chips,,{SOURCE}",
    "accelerators.csv": f"v9xlite-8,v9x,8,16,1,8,2x4,tpu-vm-tf-2.21.0-v9x,v2-alpha-tpuv9x,v2,{SOURCE}\n"
    f"v9xlite-16,v9x,16,32,2,8,4x4,,v2-alpha-tpuv9x,v2,{SOURCE}",
    "prices.csv": f"v9xlite-8,{ZONE},9.9,3.3,{SOURCE}\nv9xlite-16,{ZONE},9.9,3.3,{SOURCE}",
    "runtime_versions.csv": f"tpu-vm-tf-2.21.0-v9x,v9x,2.21.0,3.12,{SOURCE}\nv2-alpha-tpuv9x,v9x,,,{SOURCE}",
}
LETTER = f"""\
For 90 days your project may use, free of charge:
* 16 spot Cloud TPU v9x chips in zone {ZONE}
* 1 on-demand Cloud TPU v9xlite-8 device(s) in zone {ZONE}
* 8 Cloud TPU v9 chips in zone us-east1-c
"""
NOW = dt.datetime(2026, 11, 28, 12, tzinfo=dt.UTC)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The tables that ship with the project, with rows of a new generation."""
    copied = Path(shutil.copytree(INCLUDE / "catalogue", tmp_path / "catalogue"))
    for name, rows in ROWS.items():
        with (copied / name).open("a", encoding="utf-8") as table:
            table.write(f"{rows}\n")
    return copied


@pytest.fixture
def catalogue(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalogue]:
    """Those tables, in use by this process."""
    monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__CATALOGUE", str(folder))
    load_catalogue.cache_clear()
    yield load_catalogue()
    load_catalogue.cache_clear()


def granted(catalogue: Catalogue) -> Grant:
    """The grant of the letter, written to a file and read back."""
    letter = read_letter(LETTER, catalogue.generations)
    assert letter.unparsed == ()
    facts = Facts("local-project", "100000000001", "2026-11-01", "trc-local")
    text = grant_text(grant_of(letter, facts, catalogue.generations), letter)
    return Grant.parse(yaml.safe_load(text), catalogue.generations)


def permit(catalogue: Catalogue, tier: Tier, kind: str = "v9xlite-8", there: Sequence[TPUView] = ()) -> Permit:
    """What the grant says of one TPU."""
    accelerator = catalogue.types[kind]
    spec = TPUSpec("local-project", ZONE, kind, accelerator.default_runtime, tier, internal_ips=True)
    return authorize(
        granted(catalogue), Request(spec, accelerator, NOW + dt.timedelta(hours=1)), Inventory.of(there, []), NOW
    )


def test_the_form_offers_it(catalogue: Catalogue) -> None:
    """The trigger form lists the type and its zone, a form that names it is read, and a slip is met with it."""
    assert "v9xlite-8" in str(train_params()["accelerator_type"].schema)
    conf = RunConf.parse({**FORM, "accelerator_type": "v9xlite-8", "zone": ZONE}, catalogue)
    assert conf.runtime_version == "tpu-vm-tf-2.21.0-v9x"
    assert catalogue.pythons[conf.runtime_version] == (3, 12)


def test_the_letter_and_the_grant_file_know_it(catalogue: Catalogue) -> None:
    """Chips by any name of the generation and devices of a type are rows of the grant."""
    assert [str(row) for row in granted(catalogue).allowances] == [
        f"16 spot v9x chips in {ZONE}",
        f"1 on-demand v9xlite-8 devices in {ZONE}",
        "8 on-demand v9x chips in us-east1-c",
    ]


def test_a_create_is_counted(catalogue: Catalogue) -> None:
    """A TPU is covered by chips or device, and one that is there takes its eight chips."""
    assert permit(catalogue, Tier.SPOT).allowance_text == f"16 spot v9x chips in {ZONE}"
    assert permit(catalogue, Tier.ON_DEMAND).allowance_text == f"1 on-demand v9xlite-8 devices in {ZONE}"
    there = TPUView(node_name("local-project", ZONE, "n"), "READY", accelerator_type="v9xlite-8", tier=Tier.SPOT)
    with pytest.raises(GrantViolation, match="16 asked and 8 held are more than 16 spot v9x chips"):
        permit(catalogue, Tier.SPOT, "v9xlite-16", [there])


def test_the_page_shows_it(folder: Path) -> None:
    """The page of types has its chips, runtime versions and price."""
    page = types_page.page(folder)
    assert "| v9xlite-8 | 8 | 1 | 2x4 | `tpu-vm-tf-2.21.0-v9x` | `v2-alpha-tpuv9x` |" in page
    assert f"| v9xlite-8 | {ZONE} | 9.9 | 3.3 |" in page


async def test_the_local_cloud_makes_it(catalogue: Catalogue, folder: Path, tmp_path: Path) -> None:
    """The product's client creates one, sees it READY, and meets the quota of the generation by its name."""
    quick = Latencies(waiting=0.02, creating=0.1, failing=0.05, deleting=0.02, suspending=0.05, changing=0.02)
    settings = Settings(latencies=quick, quota={f"TPUV9XPreemptiblePerProjectPerZoneForTPUAPI@{ZONE}": 8})
    allowed = permit(catalogue, Tier.SPOT)
    with BackgroundCloud(LocalCloudConfig(tmp_path / "cloud", settings, tier="inprocess", catalogue=folder)) as cloud:
        endpoint = APIEndpoint("local-project", AnonymousCredentials(), cloud.endpoints.tpu_api_endpoint, True)
        async with TPUClient(endpoint) as client:
            await client.create(allowed.spec, Stamp("n-1", {}, "", "6f1f8b2e-6d0b-4b43-9f6f-1f4a3c8f6a11"), allowed)

            async def phases() -> list[Phase]:
                return [node.phase for node in (await take_snapshot(client)).nodes]

            assert await eventually_async(phases, lambda found: found == [Phase.USABLE])
            (node,) = (await take_snapshot(client)).nodes
            assert (node.accelerator_type, node.zone) == ("v9xlite-8", ZONE)
            with pytest.raises(Exception, match="TPUV9XPreemptiblePerProjectPerZoneForTPUAPI"):
                await client.create(allowed.spec, Stamp("n-2", {}, "", "6f1f8b2e-6d0b-4b43-9f6f-1f4a3c8f6a12"), allowed)
