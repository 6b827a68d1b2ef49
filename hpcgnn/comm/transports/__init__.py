"""Transports behind the communicator: MPI, torch.distributed, oneCCL, one process."""
