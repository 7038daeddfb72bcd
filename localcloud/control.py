# SPDX-License-Identifier: Apache-2.0
"""The control port: status, faults and actions on nodes for people and tests, as JSON over HTTP on the loopback."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from aiohttp import web

from localcloud.endpoints import Endpoints
from localcloud.faults import FaultRegistry, FaultSpecError
from localcloud.rules.errors import CloudError
from localcloud.tpu_state.cloud_state import CloudState, state_name
from localcloud.vm.worker.interface import Worker
from localcloud.vm.worker_pool import WorkerPool

_ON_WORKERS: dict[str, Callable[[Worker], Awaitable[None]]] = {
    "freeze": lambda worker: worker.freeze(),
    "thaw": lambda worker: worker.thaw(),
    "drop": lambda worker: worker.drop(),
    "refuse": lambda worker: worker.refuse(),
    "accept": lambda worker: worker.accept(),
    "rotate": lambda worker: worker.rotate_host_key(),
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ControlledCloud(Protocol):
    """What the control port needs of a running cloud; :class:`localcloud.server.LocalCloud` has it."""

    faults: FaultRegistry
    endpoints: Endpoints
    worker_pool: WorkerPool

    @property
    def state(self) -> CloudState:
        """Nodes, queued resources, operations."""

    def dump(self, *, calls: bool = False) -> dict[str, Any]:
        """Return what the meter has counted, and what the storage holds and has moved."""


class Control:
    """Serves status, meter, faults and the actions on nodes.

    :param cloud: the cloud to control.
    """

    def __init__(self, cloud: ControlledCloud) -> None:
        self._cloud = cloud
        self._runner: web.AppRunner | None = None

    async def start(self) -> str:
        """Listen and return the base URL."""
        app = web.Application(middlewares=[_explain])
        app.add_routes(
            [
                web.get("/status", self._status),
                web.get("/meter", self._meter),
                web.get("/faults", self._report),
                web.post("/faults", self._add),
                web.post("/zones", self._zone),
                web.post("/reset", self._reset),
                web.post("/nodes/{action}", self._act),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def close(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _status(self, _: web.Request) -> web.Response:
        cloud = self._cloud
        endpoints = cloud.endpoints
        answer = {
            "pid": endpoints.pid,
            "tier": endpoints.tier,
            "vm_processes": cloud.worker_pool.processes(),
            "unused_faults": cloud.faults.unused(),
            **cloud.state.snapshot(),
        }
        return web.json_response(answer)

    async def _meter(self, request: web.Request) -> web.Response:
        return web.json_response(self._cloud.dump(calls="calls" in request.query))

    async def _report(self, _: web.Request) -> web.Response:
        faults = self._cloud.faults
        return web.json_response({"faults": faults.report(), "unused": faults.unused()})

    async def _add(self, request: web.Request) -> web.Response:
        specs = await _body(request)
        added = [self._cloud.faults.add(spec) for spec in (specs if isinstance(specs, list) else [specs])]
        return web.json_response({"added": added})

    async def _zone(self, request: web.Request) -> web.Response:
        """Let a zone be away, for every call, or bring it back."""
        order = await _body(request)
        silent = self._cloud.state.backend.unreachable
        if order.get("unreachable", True):
            silent.add(str(order["zone"]))
        else:
            silent.discard(str(order["zone"]))
        return web.json_response({"unreachable": sorted(silent)})

    async def _reset(self, _: web.Request) -> web.Response:
        """Remove every queued resource, node and fault at once; the meter and the stored objects stay."""
        self._cloud.faults.clear()
        self._cloud.state.clear()
        return web.json_response({})

    async def _act(self, request: web.Request) -> web.Response:
        order = await _body(request)
        record = self._cloud.state.node(str(order["node"]))
        action = request.match_info["action"]
        if action == "preempt":
            notice = order.get("notice")
            self._cloud.state.shutdown.preempt(record, None if notice is None else float(notice))
        elif action == "shutdown":
            self._cloud.state.shutdown.power_off(record)
        elif action in _ON_WORKERS:
            workers = self._cloud.worker_pool.workers_of(record.name)
            if workers is None:
                raise web.HTTPConflict(text=f"{record.name} has no VMs now")
            await workers.each(_ON_WORKERS[action])
        else:
            raise web.HTTPNotFound(text=f"no action {action}; known: preempt, shutdown, {', '.join(_ON_WORKERS)}")
        return web.json_response({"node": record.name, "state": state_name(record)})


async def _body(request: web.Request) -> Any:
    try:
        return await request.json()
    except json.JSONDecodeError as error:
        raise web.HTTPBadRequest(text=f"the body is not JSON: {error}") from error


@web.middleware
async def _explain(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn a refusal of the cloud into a status and a text that a person can act on."""
    try:
        return await handler(request)
    except FaultSpecError as error:
        raise web.HTTPBadRequest(text=str(error)) from error
    except CloudError as error:
        raise web.HTTPConflict(text=error.message) from error
    except KeyError as error:
        raise web.HTTPBadRequest(text=f"the body lacks {error}") from error
