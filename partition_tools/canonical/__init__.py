"""From a raw graph to the arrays of the file: each checked, in one dtype, in one order."""
