"""The graph file (HDF5): its schema, one reader, one writer, and rows of all ranks written in its order."""
