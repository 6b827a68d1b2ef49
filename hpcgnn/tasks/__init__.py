"""The tasks: a file for each, with its loss, its metrics and its predictions."""
