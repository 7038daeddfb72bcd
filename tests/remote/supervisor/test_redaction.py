# SPDX-License-Identifier: Apache-2.0
"""Secrets in what a command prints."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from airflow_tpu import protocol
from airflow_tpu.core.run.job import JobSpec
from airflow_tpu.core.source.bundle import Bundle
from supervisor.redaction import MASK, Redactor
from tests.remote.vm import RUN, Machine, empty_tar, request

TOKEN = "t0p-s3cret/t0ken+x"
KEY = "-----BEGIN-----\nfirst line of it\nlast line of it\n-----END-----"


def masked(parts: list[bytes], *values: str) -> bytes:
    """What is shown of a stream that arrives in these parts."""
    shown: list[bytes] = []
    redactor = Redactor(values, shown.append)
    for part in parts:
        redactor.feed(part)
    redactor.close()
    return b"".join(shown)


@pytest.mark.parametrize("cut", range(1, len(TOKEN) + 4))
def test_a_value_is_masked_wherever_the_stream_is_cut(cut: int) -> None:
    """In two parts, and byte by byte."""
    text = f"a {TOKEN} b\n".encode()
    assert masked([text[:cut], text[cut:]], TOKEN) == b"a *** b\n"
    assert masked([bytes([byte]) for byte in text], TOKEN) == b"a *** b\n"


def test_a_value_is_masked_in_its_usual_forms() -> None:
    """JSON, repr, a URL, base64 with something before it, single lines of a longer value."""
    told = "".join(json.dumps(KEY)), repr(KEY), f"  {KEY.splitlines()[1]}"
    for text in told:
        assert b"first line" not in masked([text.encode()], KEY)
    for before in ("", "u", "us", "user:"):
        encoded = base64.b64encode(f"{before}{TOKEN} tail".encode())
        left = masked([encoded], TOKEN).replace(MASK, b"")
        assert len(left) <= len(base64.b64encode(f"{before} tail".encode())) + 8
    assert masked([b"?key=t0p-s3cret%2Ft0ken%2Bx&"], TOKEN) == b"?key=***&"


def test_other_text_is_shown_at_once() -> None:
    """Only what may be the beginning of a value waits; of two values that begin alike, the longer one is masked."""
    shown: list[bytes] = []
    redactor = Redactor(["secret-one", "secret-one-and-more", "abc"], shown.append)
    redactor.feed(b"step 1\nabc sec")
    assert b"".join(shown) == b"step 1\nabc "
    redactor.feed(b"ond secret-one")
    assert b"".join(shown) == b"step 1\nabc second "
    redactor.feed(b"-and-more!")
    assert b"".join(shown) == b"step 1\nabc second ***!"


def test_a_command_has_its_secrets_and_the_disk_has_not(machine: Machine) -> None:
    """They come after the bundle; what is printed last, without a line end, is in the log, masked."""
    script = "import os, sys; sys.stdout.write('all of it ' + os.environ['API_KEY'] + '|' + os.environ['API_KEY'][:4])"
    job = JobSpec(RUN.run_name, RUN.attempt, ("python3", "-c", script))
    kept = json.dumps({"API_KEY": TOKEN}).encode()
    header, _, rest = request(job, Bundle((), empty_tar())).partition(b"\n")
    message = {**json.loads(header), "secrets": {"length": len(kept)}}
    answer = machine.ask("start", data=json.dumps(message).encode() + b"\n" + rest + kept)
    assert answer["type"] == protocol.STARTED
    result = machine.result()
    assert (result["exit_code"], result["log_size"]) == (0, len(machine.log()))
    assert machine.log() == f"all of it ***|{TOKEN[:4]}".encode()
    files = [path for path in Path(machine.home).rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if TOKEN.encode() in path.read_bytes()] == []
