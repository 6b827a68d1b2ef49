"""Readers of other libraries' own files: partitions of DGL, GraphBolt and GraphStorm, and objects of DGL."""
