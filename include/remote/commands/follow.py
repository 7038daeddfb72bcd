# SPDX-License-Identifier: Apache-2.0
"""The follow command: the log as framed bytes from an offset, then how the run ended."""

from __future__ import annotations

import os
import select
import time
from typing import Any, BinaryIO

import protocol

from machine import contact, state
from machine.run_dir import RunDir

_FIRST_TICK_SECS = 0.05  # short runs end soon; the tick doubles up to the coalescing time
_LAST_ACK_SECS = 10.0


class LogStreamer:
    """Streams one attempt to one client.

    :param run: the attempt.
    :param out: receives the frames.
    :param acks: descriptor on which the client acknowledges what it has stored; its end means that the client has left.
    """

    def __init__(self, run: RunDir, out: BinaryIO, acks: int = 0) -> None:
        self._run = run
        self._out = out
        self._acks = acks
        self._buffer = b""
        self._client_left = False
        self._next_heartbeat = 0.0
        self._offset = 0

    def follow(self, offset: int | None) -> None:
        """Stream from ``offset``, or from what was last acknowledged, until the end is sent or the client leaves."""
        self._offset = self._delivered() if offset is None else offset
        try:
            self._stream()
        except BrokenPipeError:
            self._take_acks(0.0)  # the client's last acknowledgements may still lie in the pipe
            raise

    def _stream(self) -> None:
        tick = _FIRST_TICK_SECS
        while not self._client_left:
            # Before the log is read: what it holds after the end is everything.
            now = state.observe(self._run)
            self._send_log()
            if now.name != state.RUNNING:
                self._send_end(now)
                return
            self._send_heartbeat()
            self._take_acks(tick)
            tick = min(2 * tick, protocol.COALESCE_SECS)

    def _send(self, kind: str, **fields: Any) -> None:
        self._out.write(protocol.encode(kind, **fields))

    def _send_log(self) -> None:
        try:
            log = self._run.log.open("rb", buffering=0)
        except FileNotFoundError:
            return
        with log:
            log.seek(self._offset)
            while not self._client_left:
                data = log.read(protocol.CHUNK_BYTES)
                if not data:
                    break
                self._send(protocol.LOG, offset=self._offset, length=len(data))
                self._out.write(data)
                self._out.flush()
                self._offset += len(data)
                self._take_acks(0.0)

    def _send_heartbeat(self) -> None:
        if time.monotonic() < self._next_heartbeat:
            return
        self._next_heartbeat = time.monotonic() + protocol.HEARTBEAT_SECS
        mirror = self._run.read(protocol.MIRROR_FILE)
        self._send(protocol.HEARTBEAT, size=self._run.log_size(), progress=self._run.progress(), mirror=mirror)
        self._out.flush()

    def _send_end(self, now: state.State) -> None:
        if now.name == state.FINISHED:
            self._send(protocol.FINISHED, result=now.result)
        else:
            self._send(protocol.GONE, reason=now.reason, detail=now.detail)
        self._out.flush()
        self._take_acks(_LAST_ACK_SECS)

    def _take_acks(self, seconds: float) -> None:
        """Record what the client acknowledges during so many seconds."""
        end = time.monotonic() + seconds
        while not self._client_left:
            wait = max(end - time.monotonic(), 0.0)
            if not select.select([self._acks], [], [], wait)[0]:
                return
            received = os.read(self._acks, 65536)
            self._client_left = not received
            lines = (self._buffer + received).split(b"\n")
            self._buffer = lines.pop()
            if lines:
                contact.record(self._run)
                self._note(max(self._acknowledged(line) for line in lines))

    @staticmethod
    def _acknowledged(line: bytes) -> int:
        message = protocol.decode(line)
        if message["type"] != protocol.ACK or not isinstance(message.get("offset"), int):
            raise protocol.ProtocolError("expected an ack, got %r" % (message,))
        return int(message["offset"])

    def _delivered(self) -> int:
        return int((self._run.read(protocol.DELIVERED_FILE) or {}).get("offset", 0))

    def _note(self, offset: int) -> None:
        """Persist an acknowledged offset; a client that replays the log does not move it back."""
        if self._delivered() < offset <= self._offset:
            self._run.write(protocol.DELIVERED_FILE, {"offset": offset})
