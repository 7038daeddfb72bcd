"""The ledger: events, and what they add up to."""
