"""One module for each command: what it does from the open graph to its result."""
