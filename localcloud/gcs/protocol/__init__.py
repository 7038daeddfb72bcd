"""HTTP as Cloud Storage speaks it: requests, ranges, multipart, TLS."""
