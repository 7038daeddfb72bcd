# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: found locally, mirrored into the bucket, restored."""
