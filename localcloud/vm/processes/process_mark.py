# SPDX-License-Identifier: Apache-2.0
"""The variable that marks the processes of one local cloud."""

#: Every process of a cloud inherits this variable; its value is the absolute state directory.
PROCESS_MARK = "LOCALCLOUD_STATE_DIR"
