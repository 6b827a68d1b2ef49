"""Rules between options, and the plan of a run on a graph. Pure: the package reads no files and sends no messages."""
