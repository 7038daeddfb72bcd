"""Queued resources: records, states, provisioning, suspension."""
