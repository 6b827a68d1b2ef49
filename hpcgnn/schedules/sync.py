"""Sync policies: how the ranks' parameters are kept together."""


class AllreduceEveryStep:
    """Gradients are summed over ranks at every step, so that all ranks hold the same parameters at all times."""

    def __init__(self, comm):
        self._comm = comm

    def reduce(self, gradients):
        """Sum the flat gradients (one buffer, one message) over all ranks in place. Collective."""
        self._comm.allreduce_(gradients, "allreduce")
