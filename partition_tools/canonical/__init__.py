"""From a raw graph to what the file holds: each array checked, in one dtype, in one order."""
