"""Objects, buckets and their contents on disk, without HTTP."""
