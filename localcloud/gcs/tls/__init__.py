"""The TLS front of the storage server: TensorFlow's own ``gs://`` arrives here."""
