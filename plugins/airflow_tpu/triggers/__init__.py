"""Asynchronous waits that hold no worker slot."""
