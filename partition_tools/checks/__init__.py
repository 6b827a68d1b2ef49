"""What a finished graph file is checked for beyond its structure, and what a map will cost."""
