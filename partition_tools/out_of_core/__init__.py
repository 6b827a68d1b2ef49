"""Graphs larger than memory: edges are sorted, merged and counted in files of a scratch directory."""
