"""What is true in the local cloud: nodes, queued resources, operations, the meter."""
