"""Machine files: rates of kernels, messages and disks, how they are measured and read."""
