# SPDX-License-Identifier: Apache-2.0
"""The tier for machines without OpenSSH: an SSH server in this process."""
