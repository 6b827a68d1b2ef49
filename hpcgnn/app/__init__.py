"""One module per command: its work from the open graph to the result."""
