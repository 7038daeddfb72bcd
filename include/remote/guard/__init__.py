"""Gives the TPU back when nobody else will."""
