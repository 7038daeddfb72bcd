# SPDX-License-Identifier: Apache-2.0
"""What every shell script of the project begins with: one in which a part of a pipe fails has failed, at its end.

A script with ``python3 train.py |& tee log`` in its middle would pass for a success: ``pipefail`` tells bash the status
of the pipe, and bash continues. It is not stopped, as ``set -e`` would, since many scripts expect commands that fail.
"""

from __future__ import annotations

import shlex
from typing import Dict

from machine.run_dir import RunDir

_FILE = "bash-env"
_EARLIER = "TRC_BASH_ENV"
# The failure of a pipe's last part bash shows by itself. 141: `yes | head -1`. Scripts that lie elsewhere, such as
# those of the system, are left alone, and so is `bash -c`.
_TEXT = r"""[ -z "${TRC_BASH_ENV:-}" ] || . "$TRC_BASH_ENV"
_trc_project=%s
_trc_note() {
  case $1 in "$_trc_project"/* | [!/]*) ;; *) return ;; esac
  local status
  for status in "${@:2:$#-2}"; do
    case $status in 0 | 141) ;; *) _trc_failed=$status ;; esac
  done
}
case $0 in
bash | */bash) ;;
"$_trc_project"/* | [!/]*)
  set -o pipefail -E
  trap '_trc_note "${BASH_SOURCE[0]:-$0}" "${PIPESTATUS[@]}"' ERR
  trap '_trc_status=$?
if [ "$_trc_status" = 0 ] && [ -n "${_trc_failed:-}" ]; then
  echo "airflow-tpu: a part of a pipe in $0 has failed with status $_trc_failed, so the script has" >&2
  exit "$_trc_failed"
fi' EXIT
  ;;
esac
"""


def write(run: RunDir) -> None:
    """Write what bash reads before each script; before the run, which may fill the disk.

    :param run: the attempt.
    """
    (run.path / _FILE).write_text(_TEXT % shlex.quote(str(run.bundle)))


def variables(run: RunDir, given: Dict[str, str]) -> Dict[str, str]:
    """Return what leads bash to it; a file that the login or the client names is read first.

    :param run: the attempt.
    :param given: environment of the command.
    """
    return {_EARLIER: given.get("BASH_ENV", ""), "BASH_ENV": str(run.path / _FILE)}
