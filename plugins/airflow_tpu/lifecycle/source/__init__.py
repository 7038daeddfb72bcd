"""A project that lies elsewhere: the commit that a run trains, and its files on the disk of this worker for a while."""
