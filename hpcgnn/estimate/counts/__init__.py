"""Exact counts from a graph file or its statistics: rows, messages and bytes of each rank."""
