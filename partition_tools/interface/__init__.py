"""Graph files from Python: from arrays, and from the objects of other libraries."""
