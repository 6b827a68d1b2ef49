"""Sync policies: how training proceeds, and how the ranks' parameters are kept together."""

from hpcgnn.schedules.base import Stage, Step


class AllreduceEveryStep:
    """One stage, one step an epoch; gradients are summed over ranks at every step, so that all ranks hold the same
    parameters at all times.
    """

    first_whole = 0

    def __init__(self, comm):
        self._comm = comm

    def plan(self, options):
        """The whole run is one stage."""
        return [options]

    def extend(self, model):
        """Nothing but the model is trained."""

    def stage(self, index, options, model, graph):
        """The whole model."""
        return Stage(model, options)

    def follow(self, index, model):
        """There is no second stage."""
        return True

    def steps(self, epoch, stage, graph, optimizers):
        """One step on the whole graph."""
        yield Step(graph, self.reduce)

    def reduce(self, gradients):
        """Sum the flat gradients (one buffer, one message) over all ranks in place. Collective."""
        self._comm.allreduce_(gradients, "allreduce")

    def state(self, optimizers):
        """The ranks' state is one and the same."""
        return {}

    def restore(self, state, optimizers):
        """Nothing to go on from."""
