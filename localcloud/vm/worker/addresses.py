# SPDX-License-Identifier: Apache-2.0
"""Loopback addresses: one per worker, none shared with another local cloud on this machine."""

from __future__ import annotations

import errno
import os
import socket

from localcloud.vm.worker.interface import VMError

_FIRST, _LAST = 2, 254
"""Octets in use: ``127.0`` and ``127.1`` belong to others, and ``.1`` of each block carries the claim."""

_TRIES = 2000
"""Blocks to try before the port counts as taken everywhere: one cloud needs one block per 253 workers."""


class Addresses:
    """Hands out addresses ``127.a.b.c`` that are free at one port.

    Linux answers on all of 127.0.0.0/8 without set-up. A cloud claims a block ``127.a.b`` by holding its ``.1``
    bound, which the kernel grants to one process only. Addresses are not handed out twice, so a client's stale
    host key never meets a new worker by accident.

    :param port: the SSH port; 0 takes whichever is free at the first claim.
    :raises VMError: when the port cannot be bound at all.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self._claims: list[socket.socket] = []
        self._block = os.getpid()  # neighbours start their search apart
        self._next = _LAST + 1
        self._prefix = ""
        self._claim()

    def take(self) -> str:
        """Return a free address."""
        while True:
            if self._next > _LAST:
                self._claim()
            address = f"{self._prefix}.{self._next}"
            self._next += 1
            if _is_free(address, self.port):
                return address

    def close(self) -> None:
        """Give the claims back."""
        while self._claims:
            self._claims.pop().close()

    def _claim(self) -> None:
        width = _LAST - _FIRST + 1
        problem: OSError | None = None
        for _ in range(_TRIES):
            high, low = divmod(self._block, width)
            self._block += 1
            prefix = f"127.{_FIRST + high % width}.{_FIRST + low}"
            try:
                self._hold(prefix)
            except OSError as error:
                problem = error
                if error.errno != errno.EADDRINUSE:
                    break
            else:
                return
        raise VMError(_reason(self.port, problem)) from problem

    def _hold(self, prefix: str) -> None:
        claim = socket.socket()
        try:
            claim.bind((f"{prefix}.1", self.port))  # without SO_REUSEADDR: a second claim must fail
        except OSError:
            claim.close()
            raise
        self.port = claim.getsockname()[1]
        self._claims.append(claim)
        self._prefix, self._next = prefix, _FIRST


def _is_free(address: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as sshd does
        try:
            probe.bind((address, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise VMError(_reason(port, error)) from error
    return True


def _reason(port: int, problem: OSError | None) -> str:
    text = f"port {port} cannot be bound on loopback addresses 127.x.y.z ({problem})"
    if problem and problem.errno == errno.EADDRINUSE:
        return f"{text}: another server holds it on all addresses; choose another --ssh-port"
    if problem and problem.errno == errno.EACCES:
        return f"{text}: ports below 1024 need root; choose a higher --ssh-port"
    return f"{text}: the local cloud needs Linux, which answers on all of 127.0.0.0/8"
