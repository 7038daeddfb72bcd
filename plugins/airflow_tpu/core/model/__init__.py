"""A trained model: its manifest, the comparison with the champion, its fingerprint."""
