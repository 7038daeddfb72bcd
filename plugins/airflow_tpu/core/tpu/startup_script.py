# SPDX-License-Identifier: Apache-2.0
"""The startup script of a TPU VM, which gives the TPU back when no run arrives or its deadline has passed.

One text, because a node's metadata holds texts: a few modules of the runner as a zip file in Base64, and their call.
"""

from __future__ import annotations

import base64
import io
import zipfile
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from airflow_tpu import protocol
from airflow_tpu.core.tpu.resource_name import ResourceName

ARRIVAL_SECS = 3600.0
"""From the boot of a TPU VM until a run must have arrived: a TPU is charged while it waits for its run."""

_MODULES = (
    "gcs/__init__.py",
    "gcs/connections.py",
    "gcs/requests.py",
    "guard/__init__.py",
    "guard/boot_guard.py",
    "guard/own_node.py",
)
_TIME = (1980, 1, 1, 0, 0, 0)  # the first that a zip file knows: the same modules give the same script
_TEXT = """\
#!/usr/bin/env python3
# airflow-tpu: deletes this TPU when no run has arrived {arrival:.0f} s after the boot, or after its deadline.
import base64, sys, tempfile

with tempfile.NamedTemporaryFile(prefix="airflow-tpu-", suffix=".zip") as archive:
    archive.write(base64.b64decode("{archive}"))
    archive.flush()
    sys.path.insert(0, archive.name)
    from guard.boot_guard import main

main({resource!r}, {deadline!r}, {arrival!r})
"""


@dataclass(frozen=True)
class StartupScript:
    """What is the same in the startup scripts of all TPUs.

    :param archive: modules of the runner, a zip file.
    :param arrival_secs: see :data:`ARRIVAL_SECS`.
    """

    archive: bytes = field(repr=False)
    arrival_secs: float = ARRIVAL_SECS

    @classmethod
    def build(cls, remote_dir: Path) -> StartupScript:
        """Pack the modules.

        :param remote_dir: where ``runner.py`` is.
        :raises FileNotFoundError: if they are not there.
        """
        files = {name: remote_dir / name for name in _MODULES} | {"protocol.py": Path(protocol.__file__)}
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, path in files.items():
                archive.writestr(zipfile.ZipInfo(name, _TIME), path.read_bytes(), zipfile.ZIP_DEFLATED)
        return cls(buffer.getvalue())

    def text(self, resource: ResourceName, deadline: datetime) -> str:
        """Return the script of one TPU.

        :param resource: the queued resource, or the node if it was asked for directly.
        :param deadline: aware instant at which its run ends.
        """
        encoded = base64.b64encode(self.archive).decode("ascii")
        values = {"resource": str(resource), "deadline": deadline.timestamp(), "arrival": self.arrival_secs}
        return _TEXT.format(archive=encoded, **values)
