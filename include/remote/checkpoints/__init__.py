"""Checkpoints: found locally, mirrored into the bucket, restored."""
