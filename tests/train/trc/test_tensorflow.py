# SPDX-License-Identifier: Apache-2.0
"""The choice of the strategy, with a stub in place of TensorFlow: no TPU is needed to test what happens with one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trc.contract import EXIT_NO_ACCELERATOR, ContractExit
from trc.tensorflow import choose_strategy, tpu_target


class StubTensorFlow:
    """The few names that the choice uses; it records the calls in order.

    :param gpus: how many GPUs there are.
    :param fails: the call that raises.
    :param error: what it raises.
    """

    def __init__(self, gpus: int = 0, fails: str = "", error: Exception | None = None) -> None:
        self.calls: list[str] = []
        self._fails = fails
        self._error = error
        self._devices = {"GPU": ["gpu"] * gpus, "CPU": ["cpu"]}
        self.config = SimpleNamespace(
            list_physical_devices=self._devices.__getitem__,
            set_visible_devices=lambda devices, kind: self._call(f"hide {kind}"),
            set_logical_device_configuration=lambda device, logical: self._call(f"{len(logical)} logical CPUs"),
            LogicalDeviceConfiguration=object,
            experimental_connect_to_cluster=lambda resolver: self._call("connect"),
        )
        self.tpu = SimpleNamespace(
            experimental=SimpleNamespace(initialize_tpu_system=lambda resolver: self._call("initialise"))
        )
        self.distribute = SimpleNamespace(
            cluster_resolver=SimpleNamespace(TPUClusterResolver=lambda tpu: self._call(f"resolve {tpu}")),
            TPUStrategy=lambda resolver: self._call("TPUStrategy", replicas=8),
            MirroredStrategy=lambda *args, **kwargs: self._call("MirroredStrategy"),
            OneDeviceStrategy=lambda device: self._call(f"OneDeviceStrategy {device}"),
            ReductionToOneDevice=object,
            get_strategy=lambda: self._call("default strategy"),
        )

    def _call(self, name: str, replicas: int = 1) -> Any:
        self.calls.append(name)
        if self._error is not None and name.startswith(self._fails):
            raise self._error
        return SimpleNamespace(num_replicas_in_sync=replicas)


LOCAL_TPU = ["resolve local", "initialise", "TPUStrategy"]


@pytest.mark.parametrize(
    ("accel", "target", "gpus", "platform", "calls"),
    [
        ("tpu", "local", 0, "tpu", LOCAL_TPU),
        ("tpu", None, 0, "tpu", LOCAL_TPU),
        ("tpu", "local", 4, "tpu", LOCAL_TPU),
        ("tpu", "grpc://10.0.0.2:8470", 0, "tpu", ["resolve grpc://10.0.0.2:8470", "connect", *LOCAL_TPU[1:]]),
        ("tpu", "my-node", 0, "tpu", ["resolve my-node", "connect", *LOCAL_TPU[1:]]),
        ("auto", "local", 0, "tpu", LOCAL_TPU),
        ("auto", None, 0, "cpu", ["hide GPU", "default strategy"]),
        ("auto", None, 1, "gpu", ["OneDeviceStrategy /gpu:0"]),
        ("auto", None, 4, "gpu", ["MirroredStrategy"]),
        ("gpu", "local", 1, "gpu", ["OneDeviceStrategy /gpu:0"]),
        ("cpu", "local", 4, "cpu", ["hide GPU", "default strategy"]),
    ],
)
def test_the_promise_decides(accel: str, target: str | None, gpus: int, platform: str, calls: list[str]) -> None:
    """Each promise gives its strategy by exactly these calls; a local TPU is never connected to."""
    tf = StubTensorFlow(gpus)
    assert choose_strategy(tf, accel, target).platform == platform
    assert tf.calls == calls


def test_a_tpu_brings_its_number_of_replicas() -> None:
    """Eight cores of a v3-8 train eight replicas."""
    assert choose_strategy(StubTensorFlow(), "tpu", "local").replicas == 8


def test_several_replicas_can_be_tried_on_a_cpu() -> None:
    """The CPU is split before the mirrored strategy is made."""
    tf = StubTensorFlow()
    chosen = choose_strategy(tf, "cpu", None, cpu_replicas=2)
    assert (chosen.platform, chosen.replicas, chosen.description) == ("cpu", 2, "cpu, 2 replicas")
    assert tf.calls == ["hide GPU", "2 logical CPUs", "MirroredStrategy"]


@pytest.mark.parametrize("accel", ["tpu", "auto"])
@pytest.mark.parametrize(
    ("fails", "error"),
    [
        ("resolve", ValueError("Please provide a TPU Name to connect to.")),
        ("resolve", OSError("metadata server unreachable")),
        ("initialise", RuntimeError("No OpKernel was registered to support Op 'ConfigureDistributedTPU'")),
        ("TPUStrategy", IndexError("list index out of range")),
    ],
)
def test_a_tpu_that_does_not_initialise_is_never_replaced(accel: str, fails: str, error: Exception) -> None:
    """Whatever TensorFlow raises, the script ends with 69, the cause is named, and no other strategy is made."""
    tf = StubTensorFlow(gpus=2, fails=fails, error=error)
    with pytest.raises(ContractExit) as refused:
        choose_strategy(tf, accel, "local")
    assert refused.value.code == EXIT_NO_ACCELERATOR
    assert f"{type(error).__name__}: {error}" in str(refused.value)
    assert tf.calls[-1].startswith(fails)


def test_a_promised_gpu_that_is_missing_is_never_replaced() -> None:
    """TRC_ACCEL=gpu on a machine without one ends with 69."""
    tf = StubTensorFlow()
    with pytest.raises(ContractExit) as refused:
        choose_strategy(tf, "gpu", None)
    assert refused.value.code == EXIT_NO_ACCELERATOR
    assert tf.calls == []


def machine(root: Path, nodes: tuple[str, ...] = (), pci: tuple[tuple[str, str], ...] = ()) -> Path:
    """A directory with device nodes and PCI devices as Linux shows them."""
    for node in nodes:
        path = root / "dev" / node
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for number, (vendor, model) in enumerate(pci):
        device = root / "sys" / "bus" / "pci" / "devices" / f"0000:00:0{number}.0"
        device.mkdir(parents=True)
        (device / "vendor").write_text(vendor + "\n")
        (device / "device").write_text(model + "\n")
    return root


TPU_V5E, GOOGLE_NETWORK_CARD, OTHER_GPU = ("0x1ae0", "0x0063"), ("0x1ae0", "0x0042"), ("0x10de", "0x20b0")


@pytest.mark.parametrize(
    ("nodes", "pci", "environment", "expected"),
    [
        ((), (), {}, None),
        (("accel0",), (), {}, "local"),
        (("accelerometer",), (), {}, None),
        (("vfio/0", "vfio/vfio"), (GOOGLE_NETWORK_CARD, TPU_V5E), {}, "local"),
        (("vfio/0",), (OTHER_GPU, GOOGLE_NETWORK_CARD), {}, None),
        (("vfio/vfio",), (TPU_V5E,), {}, None),
        ((), (TPU_V5E,), {}, None),
        (("accel0",), (), {"TPU_NAME": "my-node"}, "local"),
        (("accel0",), (), {"TPU_NAME": "my-slice", "TPU_LOAD_LIBRARY": "0"}, "my-slice"),
        ((), (), {"TPU_NAME": "grpc://10.0.0.2:8470"}, "grpc://10.0.0.2:8470"),
        ((), (), {"TPU_NAME": "local"}, "local"),
        ((), (), {"TPU_NAME": " "}, None),
    ],
)
def test_a_tpu_is_recognised_by_its_device_nodes_then_by_its_name(
    tmp_path: Path,
    nodes: tuple[str, ...],
    pci: tuple[tuple[str, str], ...],
    environment: dict[str, str],
    expected: str | None,
) -> None:
    """Device nodes mean the local TPU, unless only the controller of a slice runs here; vfio alone proves nothing."""
    assert tpu_target(environment, machine(tmp_path, nodes, pci)) == expected


def test_a_pci_device_that_cannot_be_read_is_no_tpu(tmp_path: Path) -> None:
    """A device without its identification files is passed over."""
    machine(tmp_path, ("vfio/0",))
    (tmp_path / "sys" / "bus" / "pci" / "devices" / "0000:00:09.0").mkdir(parents=True)
    assert tpu_target({}, tmp_path) is None
