"""The certificate: one run on several numbers of ranks, their differences, and the rounding that they may have."""
