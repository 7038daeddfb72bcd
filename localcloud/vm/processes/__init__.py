# SPDX-License-Identifier: Apache-2.0
"""Processes of the local cloud: the process table, the proof that none is left."""
