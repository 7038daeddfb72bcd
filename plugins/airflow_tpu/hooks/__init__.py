"""What talks to the outside: the Cloud TPU API, SSH, Cloud Storage, the grant and the ledger."""
