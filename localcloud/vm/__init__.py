# SPDX-License-Identifier: Apache-2.0
"""TPU VMs of the local cloud: a real SSH server per worker, and a process tree that dies as a whole."""
