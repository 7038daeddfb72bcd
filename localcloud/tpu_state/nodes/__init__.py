"""Nodes: records, states, boot, loss, deletion."""
