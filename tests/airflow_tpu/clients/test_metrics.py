# SPDX-License-Identifier: Apache-2.0
"""Metrics of ended incarnations leave the process, over real sockets, through Airflow's own ``Stats``."""

from __future__ import annotations

import gzip
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import Queue
from threading import Thread
from typing import Any

import pytest
from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
from airflow.sdk._shared.observability.metrics.statsd_logger import SafeStatsdLogger
from airflow.sdk.observability import stats

from airflow_tpu.clients.metrics import count
from airflow_tpu.core.ledger.events import Closed, EndReason
from airflow_tpu.core.ledger.incarnation import unpriced
from airflow_tpu.lifecycle.ends.incarnation_end import IncarnationEnd
from airflow_tpu.lifecycle.ends.records import close_ended
from tests.airflow_tpu.cloud_env import KEY, CloudEnv
from tests.airflow_tpu.core.made_ledger import ASKED, closed, opened

ENDED = closed(reason=EndReason.PREEMPTED, minutes=90, training_seconds=3600.0, lost_seconds=600.0)
TAGS = {"accelerator_type": "v2-8", "tier": "on-demand", "zone": "us-central1-f", "end_reason": "preempted"}


class Datagrams:
    """StatsD's text protocol on a UDP socket, both ends: the client Airflow wants, and what has arrived."""

    def __init__(self) -> None:
        self._inbox = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._inbox.bind(("127.0.0.1", 0))
        self._inbox.settimeout(240)

    def incr(self, stat: str, count: int = 1, rate: float = 1) -> None:
        """Send a counter."""
        self._send(f"{stat}:{count}|c")

    def timing(self, stat: str, delta: timedelta) -> None:
        """Send a timer, in milliseconds."""
        self._send(f"{stat}:{delta.total_seconds() * 1000:g}|ms")

    def _send(self, text: str) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outbox:
            outbox.sendto(text.encode(), self._inbox.getsockname())

    def receive(self, number: int) -> set[str]:
        """The next so many datagrams."""
        return {self._inbox.recv(4096).decode() for _ in range(number)}

    def close(self) -> None:
        """Stop listening."""
        self._inbox.close()


def listen(server: Datagrams, **options: Any) -> None:
    """Let Airflow's ``Stats`` send to a server, by the logger that Airflow itself puts before a StatsD client."""
    client: Any = server  # Airflow asks for the class of a package that it does not depend on
    factory: Any = lambda: SafeStatsdLogger(client, **options)  # noqa: E731 - typed as any factory
    stats.initialize(factory=factory, export_legacy_names=True)


@pytest.fixture
def quiet_again() -> Iterator[None]:
    """Airflow's ``Stats`` send nothing after the test, as in any process without metrics."""
    yield
    stats.initialize(factory=NoStatsLogger, export_legacy_names=False)


@pytest.fixture
def datagrams(quiet_again: None) -> Iterator[Datagrams]:
    """A StatsD server that Airflow's ``Stats`` send to, without tags."""
    server = Datagrams()
    listen(server)
    yield server
    server.close()


def test_an_ended_incarnation_is_counted(datagrams: Datagrams) -> None:
    """Whole numbers for the counters, milliseconds for the wait; names as documented."""
    count(unpriced(opened(), ENDED))
    assert datagrams.receive(6) == {
        "tpu.incarnations:1|c",
        "tpu.preemptions:1|c",
        "tpu.chip_seconds:21600|c",
        "tpu.idle_chip_seconds:7200|c",
        "tpu.lost_work_seconds:600|c",
        "tpu.wait:300000|ms",
    }


def test_what_never_was_ready_waited_and_used_nothing(datagrams: Datagrams) -> None:
    """It is counted as an incarnation and as nothing else."""
    count(unpriced(opened(), Closed(opened().node_id, None, None, EndReason.NEVER_READY)))
    datagrams.incr("the end")
    assert datagrams.receive(2) == {"tpu.incarnations:1|c", "the end:1|c"}


def test_tags_reach_a_server_that_knows_tags(quiet_again: None) -> None:
    """With ``statsd_influxdb_enabled`` type, tier, zone and end are in each name."""
    server = Datagrams()
    listen(server, influxdb_tags_enabled=True, statsd_influxdb_enabled=True)
    count(unpriced(opened(), ENDED))
    tagged = ",".join(f"{key}={value}" for key, value in TAGS.items())
    assert f"tpu.chip_seconds,{tagged}:21600|c" in server.receive(6)
    server.close()


def test_one_end_is_counted_once(env: CloudEnv, datagrams: Datagrams) -> None:
    """Of several who notice an end only the first, whose record stays, counts it."""
    event = opened(KEY.node_id(1), run=KEY.digest, dag_id=KEY.dag_id, run_id=KEY.run_id)
    env.ledger.open(event)
    ending = IncarnationEnd(event.node_id, ASKED + timedelta(minutes=10), EndReason.FINISHED, ENDED.time_source)
    close_ended(env.ledger, None, KEY, [ending])
    assert "tpu.incarnations:1|c" in datagrams.receive(4)
    close_ended(env.ledger, None, KEY, [ending])
    assert not env.ledger.close(event, closed(event.node_id, minutes=3))
    count(unpriced(opened(), Closed("the next one", None, None, EndReason.NEVER_READY)))
    assert datagrams.receive(1) == {"tpu.incarnations:1|c"}


class Collector(HTTPServer):
    """An OpenTelemetry collector, as far as receiving metrics goes."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Exports)
        self.bodies: Queue[bytes] = Queue()


class Exports(BaseHTTPRequestHandler):
    """Takes one export of metrics."""

    server: Collector

    def do_POST(self) -> None:
        """Keep the body."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.bodies.put(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A running collector."""
    with Collector() as server:
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


# A process of its own: OpenTelemetry's meter provider is one per process and cannot be taken back.
COUNT = """
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics.stats_utils import get_stats_factory
from airflow_tpu.clients.metrics import count
from airflow_tpu.core.ledger.events import EndReason
from airflow_tpu.core.ledger.incarnation import unpriced
from airflow_tpu.core.ledger.incarnation import unpriced
from tests.airflow_tpu.core.made_ledger import closed, opened
stats.initialize(factory=get_stats_factory(), export_legacy_names=False)
count(unpriced(opened(), closed(reason=EndReason.PREEMPTED, training_seconds=3600.0)))
"""


def test_open_telemetry_gets_the_same(collector: Collector) -> None:
    """Switched on by Airflow's configuration alone, the numbers arrive with their tags when the process ends."""
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    switches = {
        "AIRFLOW__METRICS__OTEL_ON": "True",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    subprocess.run([sys.executable, "-c", COUNT], env={**os.environ, **switches}, check=True)
    request = ExportMetricsServiceRequest.FromString(collector.bodies.get(timeout=240))
    metrics = [m for r in request.resource_metrics for scope in r.scope_metrics for m in scope.metrics]
    (point,) = next(metric for metric in metrics if metric.name == "airflow.tpu.chip_seconds").sum.data_points
    tags = {tag.key: tag.value.string_value for tag in point.attributes}
    assert (point.as_int, tags) == (21600, TAGS)
