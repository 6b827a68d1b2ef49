"""The memory of a rank: an arena that tensors take turns in, and what the operating system says is resident."""
