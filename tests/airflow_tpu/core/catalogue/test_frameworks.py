# SPDX-License-Identifier: Apache-2.0
"""From a type and a framework to the runtime version and the packages, with the nearest answer where there is none."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.catalogue.frameworks import Stack, WantedFramework, resolve, wanted
from airflow_tpu.core.request.run_conf import RunConf
from airflow_tpu.errors import ConfigError, Fault

TF_220 = ("tensorflow-tpu==2.20.0", "libtpu>=0.0.14,<0.0.44")


def resolved(catalogue: Catalogue, kind: str, text: str) -> Stack | Fault:
    """What brings a framework, as it is typed, to a type."""
    asked = wanted(text)
    assert asked is not None
    return resolve(catalogue.types[kind], asked, catalogue.frameworks)


@pytest.mark.parametrize(
    ("kind", "text", "runtime", "packages"),
    [
        ("v2-8", "tensorflow", "tpu-vm-tf-2.18.0-pjrt", ()),
        ("v3-8", "tf 2.18", "tpu-vm-tf-2.18.0-pjrt", ()),
        ("v2-8", "tensorflow==2.17.1", "tpu-vm-tf-2.17.1-pjrt", ()),
        ("v2-32", "tensorflow 2.17.1", "tpu-vm-tf-2.17.1-pod-pjrt", ()),
        ("v2-8", "tensorflow 2.20", "tpu-ubuntu2204-base", TF_220),
        ("v5litepod-8", "jax", "v2-alpha-tpuv5-lite", ("jax[tpu]",)),
        ("v6e-8", "jax 0.6.2", "v2-alpha-tpuv6e", ("jax[tpu]==0.6.2",)),
        ("v4-8", "pytorch", "tpu-ubuntu2204-base", ("torch==2.9.0", "torch_xla[tpu]==2.9.0")),
        ("v2-8", "torch 2.7", "tpu-ubuntu2204-base", ("torch==2.7.0", "torch_xla[tpu]==2.7.0")),
    ],
)
def test_a_framework_picks_image_and_packages(
    catalogue: Catalogue, kind: str, text: str, runtime: str, packages: tuple[str, ...]
) -> None:
    """TensorFlow of an image needs no package; everything else is installed on the plain image."""
    found = resolved(catalogue, kind, text)
    assert isinstance(found, Stack)
    assert (found.runtime, found.packages) == (runtime, packages)


@pytest.mark.parametrize(
    ("kind", "text", "close", "words"),
    [
        ("v2-8", "tensorflow 2.13", "tensorflow 2.13.1", "no image and no package has this version"),
        ("v2-8", "tensorflow 2.21", "tensorflow 2.20.0", "2.20.0 is the last tensorflow"),
        ("v6e-8", "tensorflow 2.20", "tensorflow 2.18.0", "2.18.0 is the last tensorflow"),
        ("v2-8", "torch 2.15", "torch 2.9.0", "2.9.0 is the last torch"),
    ],
)
def test_what_there_is_not_has_a_nearest(catalogue: Catalogue, kind: str, text: str, close: str, words: str) -> None:
    """2.13 is not 2.13.1, and there is no TensorFlow for a TPU after 2.20."""
    found = resolved(catalogue, kind, text)
    assert isinstance(found, Fault)
    assert (found.field, found.nearest) == ("framework", close)
    assert words in found.problem
    assert close in found.allowed


@pytest.mark.parametrize("text", ["", "keras 3", "tensorflow latest", "tensorflow>=2.18", "2.18", "jax; rm -rf /"])
def test_other_words_are_no_framework(text: str) -> None:
    """A name, and a version perhaps; nothing that becomes part of a command."""
    assert wanted(text) is None


GIVEN = {"script": "hello.py", "zone": "us-central1-f", "accelerator_type": "v2-8", "artifacts_uri": "gs://trc-local/r"}


def parsed(catalogue: Catalogue, **form: Any) -> RunConf:
    """A form."""
    return RunConf.parse({**GIVEN, **form}, catalogue)


def test_the_form_takes_what_the_framework_needs(catalogue: Catalogue) -> None:
    """Without a framework everything is as before."""
    conf = parsed(catalogue, framework="tensorflow 2.20")
    assert conf.framework == Stack(WantedFramework("tensorflow", "2.20.0"), "tpu-ubuntu2204-base", TF_220)
    assert (conf.runtime_version, conf.packages) == ("tpu-ubuntu2204-base", TF_220)
    assert (parsed(catalogue).framework, parsed(catalogue).packages) == (None, ())


@pytest.mark.parametrize(
    ("form", "field", "close"),
    [
        ({"framework": "tensorflow 2.21"}, "framework", "tensorflow 2.20.0"),
        ({"framework": "tensorfow"}, "framework", "tensorflow"),
        ({"framework": "tensorflow 2.17.1", "runtime_version": "tpu-vm-tf-2.18.0-pjrt"}, "runtime_version", None),
        ({"framework": "jax", "runtime_version": "tpu-vm-tf-2.18.0-pjrt"}, "runtime_version", "tpu-ubuntu2204-base"),
    ],
)
def test_the_form_refuses_what_does_not_fit(
    catalogue: Catalogue, form: dict[str, str], field: str, close: str | None
) -> None:
    """The field that is wrong is named, with the nearest valid value."""
    with pytest.raises(ConfigError) as caught:
        parsed(catalogue, **form)
    (fault,) = caught.value.faults
    assert fault.field == field
    assert close in (None, fault.nearest)
