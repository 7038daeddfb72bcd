"""The parent of the user's command: starts, watches, stops it."""
