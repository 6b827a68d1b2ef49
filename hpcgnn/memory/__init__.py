"""The memory of a rank: an arena that recycles large tensors, and measurements of the operating system."""
