"""One kind of object in the bucket each, written under a generation precondition."""
