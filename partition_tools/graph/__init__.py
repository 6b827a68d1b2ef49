"""A graph in memory: as it was read, as the file has it, its edges in canonical order, the quality of a map."""
