"""The real program on a small copy of a rank: memory, work and messages of a step."""
