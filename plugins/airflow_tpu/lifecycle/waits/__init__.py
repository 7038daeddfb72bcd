"""Waits for a TPU: until it is READY, reachable, lost or gone."""
