# SPDX-License-Identifier: Apache-2.0
"""The trigger form, read and checked in full."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.request.run_conf import RunConf
from airflow_tpu.core.tpu.spec import Tier
from airflow_tpu.errors import ConfigError, Fault

GOOD: dict[str, Any] = {
    "script": "digits.py",
    "arguments": "--steps 600 --name='a b'",
    "accelerator_type": "v2-8",
    "zone": "us-central1-f",
    "tier": "on-demand",
    "runtime_version": "",
    "artifacts_uri": "gs://trc-local/runs",
    "deadline_hours": 3,
    "max_preemptions": 20,
    "stall_minutes": 90,
    "unreachable_minutes": 12,
    "provisioning": "queued-resource",
    "internal_ips": False,
    "environment": "",
    "requirements": "",
    "allow_paid_reason": "",
    "data_uri": "",
    "seed": 7,
    "model": "",
}


def faults_of(catalogue: Catalogue, **changes: Any) -> dict[str, Fault]:
    """The faults of an otherwise good form, by field."""
    with pytest.raises(ConfigError) as caught:
        RunConf.parse({**GOOD, **changes}, catalogue)
    return {fault.field: fault for fault in caught.value.faults}


def parse_or_error(mapping: dict[str, Any], catalogue: Catalogue) -> RunConf | ConfigError:
    """The configuration, or the one error that parse may raise."""
    try:
        return RunConf.parse(mapping, catalogue)
    except ConfigError as error:
        return error


def test_a_good_form(catalogue: Catalogue) -> None:
    """The flat strings and numbers of the form become typed values; an empty runtime version becomes the default."""
    assert RunConf.parse(GOOD, catalogue) == RunConf(
        script="digits.py",
        source="",
        source_conn_id="",
        command=None,
        arguments=("--steps", "600", "--name=a b"),
        accelerator_type="v2-8",
        zone="us-central1-f",
        tier=Tier.ON_DEMAND,
        runtime_version="tpu-vm-tf-2.18.0-pjrt",
        artifacts_uri="gs://trc-local/runs",
        deadline_hours=3.0,
        start_within_hours=0.0,
        max_preemptions=20,
        stall_minutes=90,
        unreachable_minutes=12,
        on_changed_code="resume",
        revision="",
        seed=7,
        requirements="",
        framework=None,
        data_uri="",
        environment={},
        secrets={},
        provisioning="queued-resource",
        on_stock_out="wait",
        internal_ips=False,
        network="",
        subnetwork="",
        service_account="",
        outputs=(),
        model="",
        allow_paid_reason="",
    )


def test_only_four_fields_have_no_default(catalogue: Catalogue) -> None:
    """Script, type, zone and place of the artifacts must be given, all missing ones are named at once."""
    with pytest.raises(ConfigError) as caught:
        RunConf.parse({}, catalogue)
    missing = ["script", "accelerator_type", "zone", "artifacts_uri"]
    assert [fault.field for fault in caught.value.faults] == missing
    assert RunConf.parse({name: GOOD[name] for name in missing}, catalogue).tier is Tier.SPOT


def test_every_fault_is_named_at_once(catalogue: Catalogue) -> None:
    """A form with nine faults gives one error with nine faults."""
    faults = faults_of(
        catalogue,
        script="/etc/passwd",
        accelerator_type="v2-9",
        zone="us-central1",
        tier="SPOT",
        artifacts_uri="trc-local/runs",
        deadline_hours=0,
        max_preemptions=-1,
        stall_minutes=0.5,
        steps=3,
    )
    assert len(faults) == 9
    assert faults["accelerator_type"].nearest == "v2-8"
    assert faults["tier"].nearest == "spot"
    assert faults["artifacts_uri"].nearest == "gs://trc-local/runs"
    assert "us-central1-f" in faults["zone"].allowed


@pytest.mark.parametrize("given_value", ["3", 3, 3.0, "3.0", " 3 "])
def test_whole_numbers_may_come_as_text(catalogue: Catalogue, given_value: object) -> None:
    """The form sends numbers in several guises."""
    assert RunConf.parse({**GOOD, "max_preemptions": given_value}, catalogue).max_preemptions == 3


@pytest.mark.parametrize("given_value", ["", None, True, "three", 3.5, "1_000", -1, 1001, [3], float("nan"), 10**400])
def test_what_is_no_whole_number(catalogue: Catalogue, given_value: object) -> None:
    """Nothing is guessed: True is not 1, and an empty field is not 0."""
    assert list(faults_of(catalogue, max_preemptions=given_value)) == ["max_preemptions"]


@pytest.mark.parametrize("given_value", [0, -1, 721, "nan", "inf", float("inf"), "", None, False])
def test_deadlines_out_of_range(catalogue: Catalogue, given_value: object) -> None:
    """A deadline is a positive number of hours, at most 30 days."""
    assert list(faults_of(catalogue, deadline_hours=given_value)) == ["deadline_hours"]


@pytest.mark.parametrize(("given_value", "expected"), [(True, True), (False, False), ("true", True), ("False", False)])
def test_booleans(catalogue: Catalogue, given_value: object, expected: bool) -> None:
    """The word false is false."""
    assert RunConf.parse({**GOOD, "internal_ips": given_value}, catalogue).internal_ips is expected


@pytest.mark.parametrize("given_value", ["yes", "", 0, 1, None, "1"])
def test_what_is_no_boolean(catalogue: Catalogue, given_value: object) -> None:
    """Only true and false are taken."""
    assert list(faults_of(catalogue, internal_ips=given_value)) == ["internal_ips"]


OPTIONAL_TEXTS = {
    "arguments",
    "environment",
    "requirements",
    "runtime_version",
    "allow_paid_reason",
    "data_uri",
    "model",
}


@pytest.mark.parametrize("name", sorted(set(GOOD) - OPTIONAL_TEXTS))
def test_null_is_no_value(catalogue: Catalogue, name: str) -> None:
    """A null is told apart from an empty text, in every field that needs a value."""
    assert "null" in faults_of(catalogue, **{name: None})[name].problem


@pytest.mark.parametrize("name", sorted(OPTIONAL_TEXTS))
def test_null_of_an_optional_text_is_an_empty_one(catalogue: Catalogue, name: str) -> None:
    """Airflow's form sends null for an optional text that was left empty."""
    assert RunConf.parse({**GOOD, name: None}, catalogue) == RunConf.parse({**GOOD, name: ""}, catalogue)


@pytest.mark.parametrize("name", ["script", "accelerator_type", "zone", "tier", "artifacts_uri", "provisioning"])
def test_an_emptied_field_is_named(catalogue: Catalogue, name: str) -> None:
    """An empty text where a value is needed is said to be empty."""
    assert "empty" in faults_of(catalogue, **{name: ""})[name].problem


@pytest.mark.parametrize(
    "script",
    ["train.py", "dir/train model.py", "학습/train.py", "-rf.py", "it's.py", "a.sh", "gs://my-bucket/code/train.py"],
)
def test_scripts_people_really_have(catalogue: Catalogue, script: str) -> None:
    """Spaces, quotes, Unicode and leading hyphens are all right in a script's path."""
    assert RunConf.parse({**GOOD, "script": script}, catalogue).script == script


@pytest.mark.parametrize(
    "script",
    [
        "/etc/x.py",
        "~/x.py",
        "../x.py",
        "a/../../x.py",
        "C:\\x.py",
        "a\\b.py",
        "a/",
        ".",
        "a\nb.py",
        "a\x00.py",
        " a.py",
    ],
)
def test_hostile_scripts(catalogue: Catalogue, script: str) -> None:
    """A path that leaves include/train, or is none, is refused."""
    assert list(faults_of(catalogue, script=script)) == ["script"]


@pytest.mark.parametrize(
    ("uri", "nearest"),
    [
        ("s3://my-bucket/x", "gs://my-bucket/x"),
        ("gs:/my-bucket/x", "gs://my-bucket/x"),
        ("my-bucket/x", "gs://my-bucket/x"),
        ("gs://my-bucket", "gs://my-bucket/runs"),
        ("gs://My_Bucket/x", "my_bucket"),
        ("gs://ab/x", None),
        ("gs://google-stuff/x", None),
        ("gs://192.168.5.4/x", None),
        ("gs://my-bucket/a//b", None),
        ("gs://my-bucket/a/../b", None),
        ("gs://my-bucket/[1]*", None),
        ("gs://my-bucket/.well-known/acme-challenge/x", None),
        ("gs://", None),
    ],
)
def test_artifact_uris_that_google_refuses(catalogue: Catalogue, uri: str, nearest: str | None) -> None:
    """Bucket and object names follow Google's rules before anything is created."""
    assert faults_of(catalogue, artifacts_uri=uri)["artifacts_uri"].nearest == nearest


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", ()),
        ("--x=$(reboot)", ("--x=$(reboot)",)),
        ("'{{ ds }}'", ("{{ ds }}",)),
        ("--at {{ ds }}", ("--at", "{{", "ds", "}}")),
        ("--json='{\"a\":1}'", ('--json={"a":1}',)),
        ("''", ("",)),
        ("%Y ~ *", ("%Y", "~", "*")),
        ("'a\nb'", ("a\nb",)),
        ("# no comment", ("#", "no", "comment")),
    ],
)
def test_arguments_are_words_and_nothing_more(catalogue: Catalogue, line: str, words: tuple[str, ...]) -> None:
    """Words are split as a shell does; nothing is expanded, run or rendered."""
    assert RunConf.parse({**GOOD, "arguments": line}, catalogue).arguments == words


@pytest.mark.parametrize("line", ["'open", 'a "b', "x" * 200_000, "a\x00b", 7, {"a": 1}])
def test_arguments_that_cannot_be_passed(catalogue: Catalogue, line: object) -> None:
    """An open quote, a NUL or 200 kB are faults of the form, not of the run."""
    assert list(faults_of(catalogue, arguments=line)) == ["arguments"]


def test_environment(catalogue: Catalogue) -> None:
    """One KEY=VALUE a line; values keep their spaces and equals signs."""
    text = "TF_CPP_MIN_LOG_LEVEL=2\n\nNAME=a b=c \nTOKENIZERS_PARALLELISM=false\n"
    found = RunConf.parse({**GOOD, "environment": text}, catalogue).environment
    assert found == {"TF_CPP_MIN_LOG_LEVEL": "2", "NAME": "a b=c ", "TOKENIZERS_PARALLELISM": "false"}


@pytest.mark.parametrize(
    "text", ["A", "1A=x", "A-B=x", "TRC_SEED=1", "A=1\nA=2", "=x", "A=\x00", 5, {"A": True}, {1: "A"}]
)
def test_bad_environments(catalogue: Catalogue, text: object) -> None:
    """Names follow the shell's rules, and what this package sets is not overridden."""
    assert list(faults_of(catalogue, environment=text)) == ["environment"]


SECRETS = [
    "WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567",
    "DB_PASSWORD=correct horse",
    "DB_PASSWORD=zq7",
    "HF_TOKEN=zq7zq7zq",
    "X=ghp_0123456789abcdefghijABCDEFGHIJ012345",
    "X=AIzaSyA0123456789abcdefghijABCDEFGHIJ01",
    "X=-----BEGIN RSA PRIVATE KEY-----",
    "X=AKIAABCDEFGHIJKLMNOP",
    'X={"private_key": "abc"}',
]


@pytest.mark.parametrize("line", SECRETS)
def test_secrets_are_refused_and_not_repeated(catalogue: Catalogue, line: str) -> None:
    """A secret in the form would be stored and shown; the error says where to put it and does not show it."""
    name, _, secret = line.partition("=")
    with pytest.raises(ConfigError, match="name that in the field secrets") as caught:
        RunConf.parse({**GOOD, "environment": line}, catalogue)
    assert name in str(caught.value)
    assert secret not in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"arguments": "--token ghp_0123456789abcdefghijABCDEFGHIJ012345"},
        {"arguments": "'--token ghp_0123456789abcdefghijABCDEFGHIJ012345"},
        {"environment": {"A": "ghp_0123456789abcdefghijABCDEFGHIJ012345", "B": 1}},
        {"password": "ghp_0123456789abcdefghijABCDEFGHIJ012345"},
    ],
)
def test_a_secret_in_a_wrong_place_is_not_repeated(catalogue: Catalogue, changes: dict[str, Any]) -> None:
    """Whatever else is wrong, the message does not show the secret."""
    with pytest.raises(ConfigError) as caught:
        RunConf.parse({**GOOD, **changes}, catalogue)
    assert "ghp_" not in str(caught.value)


@pytest.mark.parametrize(("kind", "nearest"), [("v2-32", "v2-8"), ("v4-64", "v4-8"), ("v5litepod-16", "v5litepod-8")])
def test_pods_are_refused_with_the_types_there_are(catalogue: Catalogue, kind: str, nearest: str) -> None:
    """This version drives one worker; a pod slice is refused with the largest single-host type of its generation."""
    fault = faults_of(catalogue, accelerator_type=kind)["accelerator_type"]
    assert "pod slice" in fault.problem
    assert fault.nearest == nearest
    assert fault.allowed == catalogue.single_host_types()


def test_a_type_of_compute_engine_only_is_refused(catalogue: Catalogue) -> None:
    """Ironwood exists, but not in the Cloud TPU API."""
    assert "Compute Engine" in faults_of(catalogue, accelerator_type="tpu7x-8")["accelerator_type"].problem


def test_the_generations_name_leads_to_the_types(catalogue: Catalogue) -> None:
    """People write v5e-8; the type is v5litepod-8."""
    assert faults_of(catalogue, accelerator_type="v5e-8")["accelerator_type"].nearest == "v5litepod-8"


def test_a_zone_that_does_not_offer_the_type(catalogue: Catalogue) -> None:
    """The zone exists and has TPUs, but not these."""
    fault = faults_of(catalogue, zone="us-central2-b")["zone"]
    assert fault.problem == "does not offer v2-8"
    assert fault.nearest in catalogue.zones_of("v2-8")


@pytest.mark.parametrize(
    ("kind", "zone", "runtime", "nearest"),
    [
        ("v2-8", "us-central1-f", "tpu-vm-tf-2.18", "tpu-vm-tf-2.18.0-pjrt"),
        ("v2-8", "us-central1-f", "2.17", "tpu-vm-tf-2.17.1-pjrt"),
        ("v2-8", "us-central1-f", "tpu-vm-tf-2.4", "tpu-vm-tf-2.11.1"),
        ("v2-8", "us-central1-f", "tpu-vm-tf-2.21.0", "tpu-vm-tf-2.18.0-pjrt"),
        ("v2-8", "us-central1-f", "tpu-vm-tf-2.18.0-pod-pjrt", "tpu-vm-tf-2.18.0-pjrt"),
        ("v2-8", "us-central1-f", "tpu-ubuntu2204", "tpu-ubuntu2204-base"),
        ("v5litepod-8", "europe-west4-b", "tpu-vm-tf-2.18.0-pjrt", "tpu-vm-tf-2.18.0-pjrt-v5e-and-v6"),
        ("v5litepod-8", "europe-west4-b", "tpu-vm-tf-2.14.1", "tpu-vm-tf-2.15.1-pjrt"),
    ],
)
def test_runtime_versions_that_are_not(catalogue: Catalogue, kind: str, zone: str, runtime: str, nearest: str) -> None:
    """There is no 2.4, only what is near it: the nearest version of the generation is named."""
    faults = faults_of(catalogue, accelerator_type=kind, zone=zone, runtime_version=runtime)
    assert faults["runtime_version"].nearest == nearest
    assert all("-pod" not in name for name in faults["runtime_version"].allowed)


def test_an_unknown_field_is_met_with_the_nearest(catalogue: Catalogue) -> None:
    """A mistyped field is not silently ignored."""
    assert faults_of(catalogue, acelerator_type="v3-8")["acelerator_type"].nearest == "accelerator_type"


@pytest.mark.parametrize("mapping", [None, [], "text", 5])
def test_no_mapping_at_all(catalogue: Catalogue, mapping: Any) -> None:
    """A conf that is no mapping is one fault."""
    with pytest.raises(ConfigError, match="mapping"):
        RunConf.parse(mapping, catalogue)


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40)
anything = st.recursive(
    scalars | st.sampled_from(["\ud800", "v2-8"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=5,
)


@given(changes=st.dictionaries(st.sampled_from([*GOOD, "other"]), anything, max_size=6))
def test_nothing_but_a_config_error(catalogue: Catalogue, changes: dict[str, Any]) -> None:
    """Whatever comes in, the answer is a valid configuration or a ConfigError with printable faults."""
    answer = parse_or_error({**GOOD, **changes}, catalogue)
    if isinstance(answer, ConfigError):
        assert answer.faults
        assert len(str(answer)) < 20_000
    else:
        assert answer.accelerator_type in catalogue.types


@pytest.mark.parametrize("uri", ["gs://trc-local/data/digits.npz", "gs://trc-local/data", ""])
def test_data_set_is_an_object_or_a_prefix_or_none(catalogue: Catalogue, uri: str) -> None:
    """The data set is named by its URI; a script may also bring its own."""
    assert RunConf.parse({**GOOD, "data_uri": uri}, catalogue).data_uri == uri


def test_data_set_elsewhere_is_refused(catalogue: Catalogue) -> None:
    """A data set that is not in Cloud Storage could not be read by the TPU VM."""
    assert faults_of(catalogue, data_uri="/data/digits.npz")["data_uri"].nearest == "gs://data/digits.npz"
