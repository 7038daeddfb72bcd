# SPDX-License-Identifier: Apache-2.0
"""Waits for a TPU: until it is READY, reachable, lost or gone."""
