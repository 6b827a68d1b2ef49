"""The sub-commands, each with the function that Python code calls."""
