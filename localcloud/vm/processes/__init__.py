"""Processes of the local cloud: the process table, the proof that none is left."""
