"""Means and deviations of inputs and targets over the training times, as buffers of the model."""

from collections.abc import Iterable

import torch

from hpcgnn.comm.communicator import Communicator


class Scaling(torch.nn.Module):
    """Buffers of the model, so that a checkpoint brings them: float64 (columns,) each, and whether they are known.

    A column that never changes has the deviation 1.
    """

    input_mean: torch.Tensor
    input_deviation: torch.Tensor
    target_mean: torch.Tensor
    target_deviation: torch.Tensor
    known: torch.Tensor

    def __init__(self, inputs: int, targets: int) -> None:
        super().__init__()
        for name, columns in (("input", inputs), ("target", targets)):
            self.register_buffer(f"{name}_mean", torch.zeros(columns, dtype=torch.float64))
            self.register_buffer(f"{name}_deviation", torch.ones(columns, dtype=torch.float64))
        self.register_buffer("known", torch.zeros(1, dtype=torch.bool))

    def learn(self, pairs: Iterable[tuple[torch.Tensor, torch.Tensor]], comm: Communicator) -> None:
        """Take the numbers of all nodes in (inputs, targets) of the training times: (n_p, columns). Collective.

        Sums are of differences from the mean of the first time: a large mean takes no digits from the deviation.
        """
        moments = [_Moments(comm), _Moments(comm)]
        for pair in pairs:
            for moment, values in zip(moments, pair, strict=True):
                moment.add(values)
        for name, moment in zip(("input", "target"), moments, strict=True):
            mean, deviation = moment.total()
            getattr(self, f"{name}_mean").copy_(mean)
            getattr(self, f"{name}_deviation").copy_(deviation)
        self.known.fill_(True)


class _Moments:
    """Sums of columns and of their squares."""

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm
        self._shift: torch.Tensor | None = None
        self._sums: torch.Tensor | None = None

    def add(self, values: torch.Tensor) -> None:
        """Take in rows (n_p, F). The first call is collective."""
        exact = values.double()
        if self._shift is None or self._sums is None:
            mean = torch.cat([exact.sum(0), torch.tensor([float(len(exact))]).double()])
            total = self._comm.total(mean)
            self._shift = total[:-1] / total[-1].clamp(min=1)
            self._sums = torch.zeros(2, values.shape[1] + 1, dtype=torch.float64)
        exact = exact - self._shift
        self._sums[0, :-1] += exact.sum(0)
        self._sums[1, :-1] += exact.square().sum(0)
        self._sums[:, -1] += len(exact)

    def total(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(mean, deviation) over all ranks. Collective."""
        assert self._shift is not None and self._sums is not None, "there is a training time"
        sums = self._comm.total(self._sums)
        (first, square), count = sums[:, :-1], sums[0, -1].clamp(min=1)
        variance = (square / count - (first / count).square()).clamp(min=0)
        changes = variance > 1e-24 * (self._shift.square() + square / count)
        return self._shift + first / count, torch.where(changes, variance, 1.0).sqrt()
