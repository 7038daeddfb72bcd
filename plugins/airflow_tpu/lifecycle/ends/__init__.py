"""How an incarnation ends: its delete, the reason, its record in the ledger."""
