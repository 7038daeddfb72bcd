# SPDX-License-Identifier: Apache-2.0
"""This machine: its processes, the run's directory, the run's state."""
