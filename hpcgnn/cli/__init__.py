"""The command line: the words of each command, and the function of `app` that it calls."""
