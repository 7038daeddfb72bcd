"""Processes of the local cloud as /proc shows them."""
