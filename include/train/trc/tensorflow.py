# SPDX-License-Identifier: Apache-2.0
"""Choose TensorFlow's distribution strategy for the accelerator that was promised.

The model code stays the same everywhere; only the strategy differs. A promise is kept or refused: when
``TRC_ACCEL=tpu`` and the TPU does not initialise, the script ends with status 69. Falling back to the CPU would use
up the hours of a grant at a hundredth of the speed, and the run would look healthy.

``tf`` is an argument, so that importing this module costs nothing and the choice can be tested without a TPU.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trc.contract import EXIT_NO_ACCELERATOR, ContractExit

# Google's PCI vendor id and its TPUs, v2 to v7 (jax-ml/jax, jax/_src/hardware_utils.py). The vendor alone is not
# enough: Google's network card carries it too, and /dev/vfio exists on hosts that pass a GPU through.
_VENDOR = "0x1ae0"
_TPU_DEVICES = frozenset({"0x0027", "0x005e", "0x0062", "0x0063", "0x006f", "0x0076"})


@dataclass(frozen=True)
class Accelerator:
    """The accelerator that was chosen, with the strategy to train on it.

    :param strategy: a ``tf.distribute.Strategy``.
    :param platform: tpu, gpu or cpu.
    :param replicas: copies of the model that train in step.
    """

    strategy: Any
    platform: str
    replicas: int

    @property
    def description(self) -> str:
        return f"{self.platform}, {self.replicas} replica{'' if self.replicas == 1 else 's'}"


def tpu_target(environ: Mapping[str, str], root: Path = Path("/")) -> str | None:
    """Return the argument of ``TPUClusterResolver``, or None where nothing hints at a TPU.

    Device nodes mean a TPU VM (``local``): ``/dev/accel*`` up to v4, ``/dev/vfio/*`` from v5e on. Otherwise
    ``TPU_NAME`` counts as TensorFlow reads it: ``local``, ``grpc://host:port`` or the name of a node.

    :param root: where ``dev`` and ``sys`` are.
    """
    controller_only = environ.get("TPU_LOAD_LIBRARY") == "0"  # TensorFlow's switch for the controller of a slice
    if _has_tpu_device(root) and not controller_only:
        return "local"
    return environ.get("TPU_NAME", "").strip() or None


def _has_tpu_device(root: Path) -> bool:
    if any(re.fullmatch(r"accel\d+", path.name) for path in root.glob("dev/accel*")):
        return True
    has_vfio = any(path.name.isdigit() for path in root.glob("dev/vfio/*"))
    return has_vfio and any(map(_is_tpu, root.glob("sys/bus/pci/devices/*")))


def _is_tpu(device: Path) -> bool:
    try:
        vendor, model = ((device / name).read_text().strip().lower() for name in ("vendor", "device"))
    except OSError:
        return False
    return vendor == _VENDOR and model in _TPU_DEVICES


def choose_strategy(tf: Any, accel: str, target: str | None, cpu_replicas: int = 1) -> Accelerator:
    """Build the strategy for a promised accelerator, or the best one present if ``accel`` is ``auto``.

    :param tf: the TensorFlow module.
    :param accel: tpu, gpu, cpu or auto.
    :param target: of :func:`tpu_target`.
    :param cpu_replicas: number of logical CPUs to train on in step; 2 tries the multi-replica path anywhere.
    :raises ContractExit: 69 if a promised accelerator is missing, or a TPU that is there does not initialise.
    """
    if accel == "tpu" or (accel == "auto" and target is not None):
        return _tpu(tf, target or "local")
    if accel != "cpu":
        gpus = tf.config.list_physical_devices("GPU")
        if gpus:
            return _gpu(tf, len(gpus))
        if accel == "gpu":
            raise ContractExit(EXIT_NO_ACCELERATOR, "a GPU was promised (TRC_ACCEL=gpu), but TensorFlow sees none")
    return _cpu(tf, cpu_replicas)


def _tpu(tf: Any, target: str) -> Accelerator:
    resolver = _or_refuse(lambda: tf.distribute.cluster_resolver.TPUClusterResolver(tpu=target), target)
    if target != "local":
        _or_refuse(lambda: tf.config.experimental_connect_to_cluster(resolver), target)
    _or_refuse(lambda: tf.tpu.experimental.initialize_tpu_system(resolver), target)
    strategy = _or_refuse(lambda: tf.distribute.TPUStrategy(resolver), target)
    return Accelerator(strategy, "tpu", strategy.num_replicas_in_sync)


def _or_refuse(step: Callable[[], Any], target: str) -> Any:
    """Take one step of the start of a TPU.

    Any error means the same here. Seen without a TPU: NotFoundError, IndexError, ValueError and URLError, depending
    on the wheel and on TPU_NAME.
    """
    try:
        return step()
    except Exception as error:
        cause = " ".join(str(error).split())[:160]
        raise ContractExit(
            EXIT_NO_ACCELERATOR,
            f"the TPU {target!r} did not initialise ({type(error).__name__}: {cause}). Nothing was trained: this "
            "script never falls back to the CPU. The usual causes are a wheel without TPU support (install "
            "requirements-tpu.txt, not tensorflow) and another process that holds the TPU",
        ) from error


def _gpu(tf: Any, count: int) -> Accelerator:
    strategy = tf.distribute.MirroredStrategy() if count > 1 else tf.distribute.OneDeviceStrategy("/gpu:0")
    return Accelerator(strategy, "gpu", count)


def _cpu(tf: Any, replicas: int) -> Accelerator:
    tf.config.set_visible_devices([], "GPU")
    if replicas == 1:
        return Accelerator(tf.distribute.get_strategy(), "cpu", 1)
    (cpu,) = tf.config.list_physical_devices("CPU")
    logical = [tf.config.LogicalDeviceConfiguration() for _ in range(replicas)]
    tf.config.set_logical_device_configuration(cpu, logical)
    # The default on CPUs is a collective all-reduce, with which several steps per call fail in TensorFlow 2.21.
    reduction = tf.distribute.ReductionToOneDevice()
    devices = [f"/cpu:{index}" for index in range(replicas)]
    return Accelerator(tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction), "cpu", replicas)
