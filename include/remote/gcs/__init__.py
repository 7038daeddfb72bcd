"""Cloud Storage over HTTP, standard library only."""
