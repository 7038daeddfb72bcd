# SPDX-License-Identifier: Apache-2.0
"""Output and log go from the worker into a bucket, whatever is lying around and whatever the network does."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import stat
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from airflow_tpu import protocol
from airflow_tpu.core.run.job import JobSpec
from airflow_tpu.core.run.manifest import Manifest
from airflow_tpu.core.source.bundle import Bundle
from airflow_tpu.core.source.selection import Source
from tests.remote.checkpoint_server import BucketServer
from tests.remote.vm import RUN, Machine, named, request

MIB = 1024 * 1024
ODD_NAMES = ("a#1", "100%", "x%2Fy", "q?x", "a b", "[1]*", "tab\t", ".hidden", "-x", "한글", "n" * 255)


class Bucket(BucketServer):
    """A bucket of the local cloud and what a machine pushes into it."""

    async def push(self, machine: Machine, uri: str = "gs://art/runs/one") -> tuple[list[dict[str, Any]], Any]:
        """Push; return the messages and the manifest of the last one."""
        process = await asyncio.create_subprocess_exec(
            *machine.command("push", *named(RUN), "--to", uri),
            env=machine.environment(STORAGE_EMULATOR_HOST=self.url),
            stdout=subprocess.PIPE,
        )
        output, _ = await process.communicate()
        lines = output.split(b"\n")
        messages = [protocol.decode(line) for line in lines if line.startswith(b'{"v"')]
        payload = output[-messages[-1].get("length", 0) :] if messages[-1]["type"] == protocol.PUSHED else b"null"
        return messages, json.loads(payload)


@pytest.fixture
async def bucket(tmp_path: Path) -> AsyncIterator[Bucket]:
    """An empty bucket ``art``."""
    art = Bucket(tmp_path / "gcs", "art")
    art.url = await art.server.start()
    yield art
    await art.server.close()
    assert art.faults.unused() == []


def run_in_project(machine: Machine, folder: Path, script: str, declared: tuple[str, ...] = ()) -> dict[str, Any]:
    """Run a shell script in a project that has other files; return its result."""
    project = folder / "project"
    project.mkdir()
    (project / "train.sh").write_text(script)
    (project / "shipped.txt").write_text("as it was")
    (project / "grows.txt").write_text("shipped")
    bundle = Bundle.build(Source(project, "train.sh", folder / "home"))
    job = JobSpec(RUN.run_name, RUN.attempt, bundle.program, artifacts=declared)
    machine.ask("start", data=request(job, bundle))
    result = machine.result()
    assert result["exit_code"] == 0
    return result


async def test_what_is_left_in_the_working_directory_is_saved(machine: Machine, bucket: Bucket, tmp_path: Path) -> None:
    """New and changed files beside the script are pushed; what travelled there, caches and hidden files are not."""
    left = "mkdir -p ckpt __pycache__ .cache && echo w > ckpt/1.h5 && touch -d 2001-01-01 old.npz"
    run_in_project(machine, tmp_path, f"{left} && touch .cache/x __pycache__/y && echo more >> grows.txt")
    _, manifest = await bucket.push(machine)
    expected = ["log.txt", "working-dir/ckpt/1.h5", "working-dir/grows.txt", "working-dir/old.npz"]
    assert paths(manifest["files"]) == expected


async def test_the_manifest_names_the_commit(machine: Machine, bucket: Bucket) -> None:
    """As the script finds it, so that files in the bucket can be traced to their code."""
    machine.run("true", environment={"TRC_REVISION": "1" * 40})
    _, manifest = await bucket.push(machine)
    assert manifest["revision"] == "1" * 40


async def test_data_in_the_working_directory_are_no_result(machine: Machine, bucket: Bucket, tmp_path: Path) -> None:
    """Beyond the limit the newest files are saved, and each other one is named."""
    run_in_project(machine, tmp_path, "truncate -s 3G data.bin && sleep 0.1 && echo w > model.h5")
    _, manifest = await bucket.push(machine)
    assert paths(manifest["files"]) == ["log.txt", "working-dir/model.h5"]
    (skipped,) = manifest["skipped"]
    assert skipped["path"] == "working-dir/data.bin"
    assert skipped["reason"].startswith("is beyond the 2 GiB that are saved")


async def test_an_environment_is_no_result(machine: Machine, bucket: Bucket, tmp_path: Path) -> None:
    """Whatever a script calls the one that it makes; its packages would fill what is saved."""
    made = (
        "mkdir -p bv_venv/lib conda/conda-meta && touch bv_venv/pyvenv.cfg bv_venv/lib/six.py conda/conda-meta/history"
    )
    run_in_project(machine, tmp_path, f"{made} && echo w > model.h5")
    _, manifest = await bucket.push(machine)
    assert paths(manifest["files"]) == ["log.txt", "working-dir/model.h5"]


async def test_declared_outputs_are_saved_in_any_case(machine: Machine, bucket: Bucket, tmp_path: Path) -> None:
    """Beyond the limit and in a folder that counts as a cache; a file that travelled and is unchanged is no output."""
    script = "mkdir build && echo w > build/model.h5 && truncate -s 3G data.bin && echo w > other.h5"
    result = run_in_project(machine, tmp_path, script, ("build/*.h5", "other.h5", "shipped.txt"))
    assert result["missing_artifacts"] == ["shipped.txt"]
    _, manifest = await bucket.push(machine)
    assert paths(manifest["files"]) == ["log.txt", "working-dir/build/model.h5", "working-dir/other.h5"]


@pytest.fixture
def output(machine: Machine) -> Path:
    """The output directory of a run that has printed one line."""
    machine.run("echo", "done")
    return machine.attempt() / "output"


def paths(entries: list[dict[str, Any]]) -> list[str]:
    """The paths of manifest entries."""
    return [entry["path"] for entry in entries]


def reasons(manifest: dict[str, Any]) -> dict[str, str]:
    """Why files are not in the bucket, by path below the output directory."""
    entries = manifest["skipped"] + manifest["failed"]
    return {entry["path"].removeprefix("output/"): entry["reason"] for entry in entries}


async def test_output_and_log_arrive_and_the_manifest_fits(bucket: Bucket, machine: Machine, output: Path) -> None:
    """Every file arrives under its path with the checksums the server computed, and the log with them."""
    (output / "model").mkdir()
    (output / "model" / "weights.bin").write_bytes(os.urandom(1000))
    (output / "empty").touch()
    messages, manifest = await bucket.push(machine)
    assert paths(manifest["files"]) == ["log.txt", "output/empty", "output/model/weights.bin"]
    weights = Manifest.from_json(manifest).files[2]
    digest = hashlib.md5((output / "model" / "weights.bin").read_bytes()).digest()
    assert (weights.size, weights.md5) == (1000, base64.b64encode(digest).decode())
    assert messages[-1]["uri"] == "gs://art/runs/one/manifest.json"
    assert [message["done"] for message in messages if message.get("path")] == [1, 2, 3]


@pytest.mark.parametrize(("key", "asked"), [(False, {"objects.list"}), (True, {"objects.list", "objects.get"})])
async def test_a_second_push_uploads_nothing_and_gives_the_same_manifest(
    bucket: Bucket, machine: Machine, output: Path, key: bool, asked: set[str]
) -> None:
    """The same content again is recognised by its checksum, also where only the object itself shows that."""
    if key:
        await asyncio.to_thread(bucket.encrypt)
    (output / "a").write_text("a")
    _, first = await bucket.push(machine)
    before = dict(bucket.requests)
    _, second = await bucket.push(machine)
    changed = {name: count - before.get(name, 0) for name, count in bucket.requests.items()}
    assert second == first
    assert {name for name, count in changed.items() if count} == asked


async def test_each_file_is_one_request_and_a_large_one_three(bucket: Bucket, machine: Machine, output: Path) -> None:
    """A push costs one listing, a request for each small file, log and manifest, and three for one of any size."""
    for number in range(200):
        (output / f"{number}").write_text(f"{number}")
    (output / "big").write_bytes(os.urandom(40 * MIB + 1))
    _, manifest = await bucket.push(machine)
    assert len(manifest["files"]) == 202
    assert bucket.requests == {"objects.list": 1, "objects.insert": 202, "uploads.start": 1, "uploads.put": 2}


async def test_changed_content_replaces_what_the_last_push_left(bucket: Bucket, machine: Machine, output: Path) -> None:
    """A file that was written again after a push is in the bucket as it is now, as a new generation."""
    (output / "a").write_text("old")
    _, first = await bucket.push(machine)
    (output / "a").write_text("newer")
    _, second = await bucket.push(machine)
    assert (first["files"][1]["size"], second["files"][1]["size"]) == (3, 5)
    assert first["files"][1]["generation"] != second["files"][1]["generation"]
    assert first["files"][0] == second["files"][0]


async def test_nothing_written_is_said_plainly(bucket: Bucket, machine: Machine, output: Path) -> None:
    """A run without output has a manifest that holds its log alone; empty directories are no output."""
    (output / "empty" / "deeper").mkdir(parents=True)
    _, manifest = await bucket.push(machine)
    assert paths(manifest["files"]) == ["log.txt"]
    assert reasons(manifest) == {}


@pytest.mark.parametrize("action", ["503", "429", "abort", "lose-response"])
async def test_failures_that_pass_are_waited_out(bucket: Bucket, machine: Machine, output: Path, action: str) -> None:
    """A request that fails, or whose answer is lost, at the start or in the middle of an upload, changes nothing."""
    content = os.urandom(20 * MIB)
    (output / "big").write_bytes(content)
    bucket.fault(action, method="POST", object="*/big")
    bucket.fault(action, times=2, after=1, method="PUT", object="*/big")
    _, manifest = await bucket.push(machine)
    assert manifest["failed"] == []
    assert manifest["files"][1]["md5"] == base64.b64encode(hashlib.md5(content).digest()).decode()


async def test_a_refusal_for_one_file_is_reported_and_the_rest_arrives(
    bucket: Bucket, machine: Machine, output: Path
) -> None:
    """A 403 on one object leaves its reason in the manifest, which comes all the same."""
    (output / "a").write_text("a")
    (output / "b").write_text("b")
    bucket.fault("403", method="POST", object="*/output/a")
    _, manifest = await bucket.push(machine)
    assert paths(manifest["files"]) == ["log.txt", "output/b"]
    assert reasons(manifest)["a"].startswith("403 ")


def litter(output: Path) -> None:
    """Leave what training scripts, their libraries and their authors leave."""
    (output / "good").write_text("good")
    os.mkfifo(output / "fifo")
    os.mknod(output / "socket", stat.S_IFSOCK | 0o600)
    (output / "to-file").symlink_to("good")
    (output / "to-nothing").symlink_to("missing")
    (output / "loop").symlink_to("loop")
    (output / "to-itself").symlink_to(".")
    (output / "out").symlink_to("/etc/passwd")
    (output / "up").symlink_to("../log")
    (output / "line\nbreak").write_text("x")
    Path(os.fsdecode(os.fsencode(output) + b"/raw\xff")).write_text("x")
    for name in ODD_NAMES:
        (output / name).write_text(name)
    deep = output.joinpath(*["d" * 250] * 4)
    deep.mkdir(parents=True)
    (deep / "too-long").write_text("x")


async def test_odd_entries_are_reported_and_never_fatal(bucket: Bucket, machine: Machine, output: Path) -> None:
    """Whatever is no ordinary file, or has a name no object can have, is named with its reason; the rest arrives."""
    litter(output)
    _, manifest = await bucket.push(machine)
    arrived = {path.removeprefix("output/") for path in paths(manifest["files"])}
    assert arrived == {"log.txt", "good", "to-file", *ODD_NAMES}
    assert manifest["links"] == [{"path": "output/to-itself", "target": "output/."}]
    found = {name.rpartition("/")[2]: reason for name, reason in reasons(manifest).items()}
    assert found == {
        "fifo": "is no file but a FIFO",
        "socket": "is no file but a socket",
        "to-nothing": "links to nothing that could be pushed",
        "loop": "links to nothing that could be pushed",
        "out": "links out of the output directory",
        "up": "links out of the output directory",
        "line\nbreak": "its name has a line break, which Cloud Storage does not allow",
        "raw\\xff": "its name is not UTF-8",
        "too-long": "its name would be longer than 1024 bytes",
    }


async def test_secrets_stay_where_they_are(bucket: Bucket, machine: Machine, output: Path) -> None:
    """Keys and password files are recognised by name or content and not uploaded."""
    secrets = ("id_rsa", "id_ed25519.old", "tls.pem", "server.key", ".env", "account.json", "renamed.txt")
    for name in secrets:
        (output / name).write_text("x")
    (output / "account.json").write_text('{"type": "service_account", "private_key": "x"}')
    (output / "renamed.txt").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    (output / "id_to_label.json").write_text("{}")
    _, manifest = await bucket.push(machine)
    assert paths(manifest["files"]) == ["log.txt", "output/id_to_label.json"]
    assert reasons(manifest) == dict.fromkeys(secrets, "looks like a key or a password file")


async def test_unreadable_files_are_reported(bucket: Bucket, machine: Machine, output: Path) -> None:
    """A file or directory without read permission is reported; its neighbours arrive."""
    for name in ("closed", "good", "dir/inside"):
        (output / name).parent.mkdir(exist_ok=True)
        (output / name).touch()
    (output / "closed").chmod(0)
    (output / "dir").chmod(0)
    if os.geteuid() == 0:  # root reads everything, unless it gives that right away
        machine.prefix = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
    _, manifest = await bucket.push(machine)
    (output / "dir").chmod(0o700)
    assert paths(manifest["files"]) == ["log.txt", "output/good"]
    assert reasons(manifest) == dict.fromkeys(("closed", "dir"), "cannot be read: Permission denied")


async def test_a_wrong_destination_is_an_error_message(bucket: Bucket, machine: Machine, output: Path) -> None:
    """A bucket that is not there, or a URI that is none, is answered by one error that names it."""
    missing, _ = await bucket.push(machine, "gs://nowhere/x")
    wrong, _ = await bucket.push(machine, "s3://art/x")
    assert [message["type"] for message in missing + wrong] == ["error", "error"]
    assert missing[0]["message"].startswith("404 ")
    assert "expected gs://bucket/prefix" in wrong[0]["message"]
