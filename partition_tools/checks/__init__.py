"""Checks of a finished graph file beyond its structure, and the costs of a map."""
