# SPDX-License-Identifier: Apache-2.0
"""The nightly retraining, night after night: first champion, nothing new, worse, better, and back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localcloud.testing import BackgroundCloud
from tests.dags.evidence import (
    asset_events,
    events,
    let_start,
    metered_seconds,
    names_left,
    objects,
    upload,
    waiting_for_a_start,
)

pytestmark = pytest.mark.slow

Run = Callable[..., Any]
ROOT = Path(__file__).resolve().parents[2]
NIGHTLY = ROOT / "dags" / "tpu_nightly_retrain.py"
NIGHTS = Path(__file__).parent / "files" / "nights.py"
ROLLBACK = ROOT / "dags" / "tpu_model_rollback.py"

# A model is one number here, the champion's is read as a script reads any object: by URI.
SCRIPT = """
import json, os, pathlib, sys, urllib.request
output, baseline = pathlib.Path(os.environ["TRC_OUTPUT_DIR"]), os.environ["TRC_BASELINE_URI"]
def measured(value):
    return {"test_accuracy": {"value": value, "higher_is_better": True}}
mine = float(sys.argv[1])
(output / "model.json").write_text(json.dumps(mine))
result = {"status": "done", "metrics": measured(mine)}
if baseline:
    bucket, _, name = f"{baseline}/output/model.json".removeprefix("gs://").partition("/")
    with urllib.request.urlopen(f"{os.environ['STORAGE_EMULATOR_HOST']}/{bucket}/{name}") as answer:
        result["baseline"] = {"uri": baseline, "metrics": measured(json.load(answer))}
(output / "result.json").write_text(json.dumps(result))
"""


# What falls is better here; the script leaves it to the DAG to say so.
LOSS = """
import json, os, pathlib, sys
result = {"status": "done", "metrics": {"test_loss": {"value": float(sys.argv[1])}}}
(pathlib.Path(os.environ["TRC_OUTPUT_DIR"]) / "result.json").write_text(json.dumps(result))
"""


def champion(cloud: BackgroundCloud) -> dict[str, Any]:
    """The pointer to the model in use."""
    return champions(cloud)["digits"]


def champions(cloud: BackgroundCloud) -> dict[str, dict[str, Any]]:
    """The pointer of each model."""
    found = objects(cloud).items()
    return {name.split("/")[-2]: json.loads(body) for name, body in found if name.endswith("/champion.json")}


def versions(cloud: BackgroundCloud) -> list[dict[str, Any]]:
    """Manifests of all versions, oldest first."""
    stored = sorted(objects(cloud).items())
    return [json.loads(body) for name, body in stored if "/models/digits/versions/" in name]


def test_nights_of_a_model(cloud: BackgroundCloud, run_dag: Run) -> None:
    """Only what has changed is trained, only what is better is promoted, and a rollback takes one task."""
    script = upload(cloud, "scripts/night.py", SCRIPT)

    def night(accuracy: str) -> Any:
        return run_dag("tpu_nightly_retrain", NIGHTLY, script=script, arguments=accuracy, provisioning="node")

    first = night("0.90")
    assert (first.state, first.tasks["promote"]) == ("success", "success"), first.log[-4000:]
    assert "the first version: test_accuracy 0.9" in champion(cloud)["reason"]
    (event,) = asset_events("tpu-model-digits", first.run_id)
    version = {name: value for name, value in versions(cloud)[0].items() if name != "schema_version"}
    assert event == {**version, "reason": champion(cloud)["reason"]}
    assert {"revision", "accelerator_type", "seed", "data_uri"} <= set(event["origin"])
    assert "" not in (event["fingerprint"], event["acknowledgement"])
    assert set(event["usage"]) == {"covered", "not_covered", "not_free"}

    again = night("0.90")
    assert (again.state, again.tasks["changed"], again.tasks["report"]) == ("success", "skipped", "skipped")
    assert {again.tasks[name] for name in ("check_grant", "lease", "create", "train", "delete")} == {"skipped"}
    assert f"skipped: data, code and settings are those of version {first.xcom['promote']['version']}" in again.log
    assert len(events(cloud, "opened")) == 1

    worse = night("0.85")
    assert (worse.state, worse.tasks["promote"]) == ("success", "skipped"), worse.log[-4000:]
    assert re.search("skipped: version .*0.85 against the champion's 0.9 on the same held-out examples", worse.log)
    assert [found["result"]["metrics"]["test_accuracy"]["value"] for found in versions(cloud)] == [0.9, 0.85]
    assert asset_events("tpu-model-digits", worse.run_id) == []
    let_start("deploy")
    assert waiting_for_a_start("tpu-model-digits") == set()

    better = night("0.95")
    assert (better.state, better.tasks["promote"]) == ("success", "success"), better.log[-4000:]
    assert champion(cloud)["artifacts_uri"] == better.xcom["promote"]["uri"]
    assert champion(cloud)["history"] == [first.xcom["promote"]["version"]]
    assert waiting_for_a_start("tpu-model-digits") == {"deploy"}

    back = run_dag("tpu_model_rollback", ROLLBACK)
    assert back.state == "success", back.log[-4000:]
    assert champion(cloud)["version"] == first.xcom["promote"]["version"]
    assert names_left(cloud) == []


def test_nights_of_another_model(cloud: BackgroundCloud, run_dag: Run) -> None:
    """The DAG of the documentation trains its own model; one that is typed into the form has all of its own as well."""
    script = upload(cloud, "scripts/loss.py", LOSS)

    def night(loss: str, **typed: str) -> Any:
        asked = {"source": None, "command": None, "data_uri": None, "provisioning": "node", **typed}
        return run_dag("tpu_nightly_speech", NIGHTS, script=script, arguments=loss, **asked)

    speech = night("0.5")
    assert (speech.state, speech.tasks["promote"]) == ("success", "success"), speech.log[-4000:]
    typed = night("0.7", model="song")
    assert (typed.state, typed.tasks["promote"]) == ("success", "success"), typed.log[-4000:]
    assert {model: found["reason"] for model, found in champions(cloud).items()} == {
        "speech": "the first version: test_loss 0.5",
        "song": "the first version: test_loss 0.7",
    }
    for run, model in ((speech, "speech"), (typed, "song")):
        (event,) = asset_events(f"tpu-model-{model}", run.run_id)
        assert (event["model"], event["version"]) == (model, run.xcom["promote"]["version"])
    assert asset_events("tpu-model-speech", typed.run_id) == []


def test_night_without_a_tpu(cloud: BackgroundCloud, run_dag: Run) -> None:
    """When the window closes before there is capacity, the night is skipped and green, and nothing was charged."""
    message = 'There is no more capacity in the zone "us-central1-f"'
    cloud.add_fault("tpu.operation", {"verb": "create"}, times=1000, action="error", code=8, message=message)
    script = upload(cloud, "scripts/night.py", SCRIPT)
    # So short that the first wait for capacity ends it; a machine so slow that it has ended before is skipped as well.
    night = run_dag("tpu_nightly_retrain", NIGHTLY, script=script, provisioning="node", start_within_hours=0.002)
    assert night.state == "success", night.log[-4000:]
    assert {name for name, state in night.tasks.items() if state == "skipped"} == {"create", "train", "copy", "promote"}
    assert {name for name, state in night.tasks.items() if state == "success"} >= {
        "lease",
        "delete",
        "report",
        "verdict",
    }
    assert "skipped: no TPU in time" in night.log
    assert (names_left(cloud), metered_seconds(cloud), versions(cloud)) == ([], 0.0, [])
