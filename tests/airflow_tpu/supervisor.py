# SPDX-License-Identifier: Apache-2.0
"""The other end of a task's or trigger's socket, in Airflow's own frames: it knows the state of one task."""

from __future__ import annotations

import socket
import threading
from typing import Any

import msgspec
from airflow.sdk.exceptions import ErrorType
from airflow.sdk.execution_time.comms import DagResult, ErrorResponse, TaskStatesResult, _RequestFrame, _ResponseFrame

from tests.airflow_tpu.cloud_env import KEY


class Supervisor:
    """Answers as the process does that supervises tasks or triggers; a context manager.

    :param state: what it says of the task, None for a task that Airflow does not know any more.
    :param no_connection: what it says of every connection (of ``ErrorType``); None: nothing.
    :param paused: whether every DAG is paused, None for DAGs that Airflow does not know.
    :ivar asked: type of each request, in order.
    """

    def __init__(
        self, state: str | None = None, no_connection: ErrorType | None = None, paused: bool | None = None
    ) -> None:
        self.state = state
        self.no_connection, self.paused = no_connection, paused
        self.asked: list[str] = []
        self._own, self.socket = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Supervisor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self.socket, self._own):
            end.close()
        self._thread.join(30.0)

    def _serve(self) -> None:
        decoder = msgspec.msgpack.Decoder(_RequestFrame)
        with self._own.makefile("rb") as requests:
            while length := requests.read(4):
                frame = decoder.decode(requests.read(int.from_bytes(length, "big")))
                body = frame.body or {}
                self.asked.append(str(body.get("type")))
                self._own.sendall(_ResponseFrame(id=frame.id, body=self._answer(body)).as_bytes())

    def _answer(self, body: dict[str, Any]) -> dict[str, Any] | None:
        if self.no_connection and body.get("type") == "GetConnection":
            return ErrorResponse(error=self.no_connection, detail={"status_code": 500}).model_dump()
        if body.get("type") == "GetDag":
            return self._dag(body["dag_id"])
        if body.get("type") != "GetTaskStates":
            return None
        states = {KEY.run_id: {name: self.state for name in body["task_ids"]}} if self.state else {}
        return TaskStatesResult(task_states=states).model_dump()

    def _dag(self, dag_id: str) -> dict[str, Any]:
        if self.paused is None:
            return ErrorResponse(error=ErrorType.GENERIC_ERROR, detail={"reason": "not_found"}).model_dump()
        fields: dict[str, Any] = dict.fromkeys(DagResult.model_fields) | {"type": "DagResult"}
        return {**fields, "dag_id": dag_id, "is_paused": self.paused, "tags": []}
