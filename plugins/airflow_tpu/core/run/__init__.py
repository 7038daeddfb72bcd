"""One run: its record with the lease, its job, its messages, its result."""
