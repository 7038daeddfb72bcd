# SPDX-License-Identifier: Apache-2.0
"""One process, one event loop, the whole cloud: TPU API, TPU VMs, Cloud Storage, control port."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from localcloud.clock import Clock, RealClock
from localcloud.control import Control
from localcloud.endpoints import Endpoints, TLSFrontEndpoint
from localcloud.faults import FaultRegistry
from localcloud.gcs import GCSServer
from localcloud.gcs.tls.proxy import TLSFront
from localcloud.rules.catalogue import DEFAULT_DIRECTORY, Catalogue
from localcloud.rules.settings import Settings
from localcloud.timeline import Timeline
from localcloud.tpu_api.audit import FILE, ActivityLog
from localcloud.tpu_api.dispatcher import CallDispatcher
from localcloud.tpu_api.grpc_server import GrpcServer
from localcloud.tpu_api.rest_server import RestServer
from localcloud.tpu_api.service import TpuService
from localcloud.tpu_state.backend import Backend, seeded_random
from localcloud.tpu_state.cloud_state import CloudState
from localcloud.tpu_state.meter import Meter
from localcloud.vm import device, power
from localcloud.vm.node_workers import WorkerConfig, report_failure
from localcloud.vm.processes.process_mark import PROCESS_MARK
from localcloud.vm.tiers import choose_driver
from localcloud.vm.worker.interface import VMDriver
from localcloud.vm.worker_pool import WorkerPool

_VM_PROGRAMS = "vm-bin"  # below the state directory
# What a login shell of a TPU VM has; the interpreter that runs the cloud stands before it, since it has the packages.
_USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class LocalCloudConfig:
    """How to start a local cloud.

    :param state_dir: everything it writes is below this directory; stored objects survive a restart.
    :param settings: project, limits, latencies.
    :param seed: makes names and random events repeatable.
    :param speed: seconds of its clock per real second.
    :param ssh_port: port of all TPU VMs; 0 picks a free one.
    :param tier: isolation of TPU VMs, ``auto`` for the strongest that works here.
    :param buckets: location by name of buckets that exist from the start.
    :param catalogue: directory of the catalogue.
    """

    state_dir: Path
    settings: Settings = field(default_factory=Settings)
    seed: int = 1
    speed: float = 1.0
    ssh_port: int = 0
    tier: str = "auto"
    buckets: Mapping[str, str] = field(default_factory=dict)
    catalogue: Path = DEFAULT_DIRECTORY


class LocalCloud:
    """A running local cloud; an async context manager.

    :param config: how to start it.
    :raises localcloud.vm.worker.interface.TierUnavailable: on entry, if the tier does not work here.
    :ivar endpoints: where it is found; set on entry.
    :ivar service: the TPU API, and the state of the project behind it; set on entry.
    :ivar worker_pool: the TPU VMs; set on entry.
    :ivar dispatcher: answers the calls of the TPU API; set on entry.
    """

    endpoints: Endpoints
    service: TpuService
    worker_pool: WorkerPool
    storage: GCSServer
    dispatcher: CallDispatcher

    def __init__(self, config: LocalCloudConfig) -> None:
        self.config = config
        self.clock: Clock = RealClock(config.speed)
        self.faults = FaultRegistry()
        self.meter = Meter(self.clock)
        self._stack = AsyncExitStack()

    @property
    def state(self) -> CloudState:
        """Nodes, queued resources, operations."""
        return self.service.state

    async def __aenter__(self) -> LocalCloud:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def _start(self) -> None:
        config = self.config
        config.state_dir.mkdir(parents=True, exist_ok=True)
        # The disks of TPU VMs do not outlive their cloud, however it ended.
        await asyncio.to_thread(shutil.rmtree, config.state_dir / "vm", ignore_errors=True)
        driver = await choose_driver(config.tier, config.ssh_port, config.state_dir / "vm")
        storage_url = await self._start_storage()
        front = TLSFront(config.state_dir / "tls", storage_url)
        await front.start()
        self._stack.push_async_callback(front.close)
        # Endpoints in the environment of VMs come first; nothing calls them before there is a VM.
        control_url = await self._start_control()
        rest_url = await self._start_rest_api()
        power.install(config.state_dir / _VM_PROGRAMS, control_url)
        device.install(config.state_dir / _VM_PROGRAMS)
        self._start_state(driver, self._vm_environment(storage_url, rest_url, front))
        tpu_endpoint = await self._start_tpu_api()
        self.endpoints = Endpoints(
            project_id=config.settings.project_id,
            project_number=config.settings.project_number,
            tpu_api_endpoint=tpu_endpoint,
            tpu_rest_endpoint=rest_url,
            storage_api_endpoint=storage_url,
            control_endpoint=control_url,
            ssh_port=driver.port,
            tier=driver.tier,
            pid=os.getpid(),
            tls_front=TLSFrontEndpoint(front.proxy, str(front.ca_file)),
        )

    async def _start_storage(self) -> str:
        settings = self.config.settings
        self.storage = GCSServer(
            self.config.state_dir / "gcs", self.clock, self.faults, settings.project_id, settings.project
        )
        url = await self.storage.start()
        self._stack.push_async_callback(self.storage.close)
        for name, location in self.config.buckets.items():
            self.storage.create_bucket(name, location, settings.project_number)
        return url

    def _start_state(self, driver: VMDriver, environment: Mapping[str, str]) -> None:
        config = self.config
        workers = WorkerConfig(driver, config.state_dir / "vm", environment, self.clock, self.faults)
        self.worker_pool = WorkerPool(workers)
        self._stack.push_async_callback(self.worker_pool.close)
        timeline = Timeline(self.clock)
        catalogue = Catalogue.load(config.catalogue)
        backend = Backend(
            config.settings, catalogue, timeline, seeded_random(config.seed), self.faults, self.worker_pool
        )
        self.service = TpuService(CloudState(backend))
        activity = ActivityLog(config.state_dir / FILE, config.settings.project_id, self.clock)
        self.dispatcher = CallDispatcher(self.service, self.meter.calls, activity)
        self.state.nodes.listeners.append(self.meter.observe)
        runner = asyncio.get_running_loop().create_task(timeline.run())
        runner.add_done_callback(report_failure)
        self._stack.callback(runner.cancel)

    async def _start_control(self) -> str:
        control = Control(self)
        url = await control.start()
        self._stack.push_async_callback(control.close)
        return url

    async def _start_rest_api(self) -> str:
        api = RestServer(lambda: self.dispatcher)
        url = await api.start()
        self._stack.push_async_callback(api.close)
        return url

    async def _start_tpu_api(self) -> str:
        api = GrpcServer(self.dispatcher)
        endpoint = await api.start()
        self._stack.push_async_callback(api.close)
        return endpoint

    def _vm_environment(self, storage_url: str, rest_url: str, front: TLSFront) -> dict[str, str]:
        """Return what the sessions on TPU VMs find in their environment; a real VM has its own means for the same."""
        return {
            "PATH": f"{self.config.state_dir / _VM_PROGRAMS}:{Path(sys.executable).parent}:{_USUAL_PATH}",
            "LANG": "C.UTF-8",
            "STORAGE_EMULATOR_HOST": storage_url,
            # Where a TPU VM deletes itself; the variable is gcloud's.
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": rest_url,
            # There is no TPU here: a script must neither look for one nor report that it used one.
            "TRC_ACCEL": "cpu",
            # gcsfs otherwise asks a gRPC service of Google first, for 60 s per try.
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
            PROCESS_MARK: str(self.config.state_dir),
            **front.environment(),
        }

    def dump(self, *, calls: bool = False) -> dict[str, Any]:
        """Return what the meter has counted, and what the storage holds and has moved."""
        return {**self.meter.dump(calls=calls), "storage": self.storage.stats()}
