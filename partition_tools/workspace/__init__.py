"""What every command works with: progress and warnings, memory, the scratch directory, one writer for one file."""
