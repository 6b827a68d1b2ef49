"""Tools of every command: progress and warnings, memory, the scratch directory, one writer for one file."""
