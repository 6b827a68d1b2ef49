"""The loss of fields, window after window."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from hpcgnn import kernels
from hpcgnn.errors import GraphError
from hpcgnn.extras.meshes.options import options_of
from hpcgnn.extras.meshes.setting import FieldSetting
from hpcgnn.extras.meshes.windows import drawn_order
from hpcgnn.ops.draws import Purpose
from hpcgnn.schedules.base import Step
from hpcgnn.tasks.base import Loss


class FieldsLoss(Loss):
    """The mean over windows and their steps of the weighted mean square of standardised errors. Made collectively.

    num_train: windows. Raises GraphError on all ranks if there is none.
    """

    def __init__(self, made: FieldSetting) -> None:
        self._made, self._options, self._start, self._factor = made, options_of(made.on.config), 0, 1.0
        self._starts = made.windows.starts("train", self._options.rollout).tolist()
        self.num_train = len(self._starts)
        weights = torch.tensor(made.columns.weights, dtype=torch.float64)
        self._weights = weights / weights.sum()
        if self.num_train == 0:
            raise GraphError.on_all(
                f"no times for training: expected --history {self._options.history} and --rollout "
                f"{self._options.rollout} of --lag {self._options.lag} in one trajectory, all of the split train; take "
                "shorter ones, or split the times anew"
            )
        if made.total <= 0:
            raise GraphError.on_all("no node counts in the loss: all are given, or have the weight 0; mend the file")

    def steps(self, steps: Iterator[Any]) -> Iterator[Step]:
        """A pass for each window, in an order that is drawn, and a move after so many of them. Collective."""
        made, size, count = self._made, self._options.snapshots_per_step, self.num_train
        if not bool(made.forecasts.scaling.known):
            made.forecasts.learn_scaling(made.windows.starts("train").tolist(), made.on.comm)
        for step in steps:
            order, passes = drawn_order(self._starts, made.on.random.key(Purpose.SHARE_ORDER, 0)), []
            for first in range(0, count, size):
                batch = order[first : first + size]
                dealt = made.dealt(batch)
                for number, (start, counts) in enumerate(dealt, start=1):
                    window = first + (number - 1) * made.replicas + made.replica  # the key of its draws
                    whole = replace(step, number=window, share=len(batch) / count, moves=number == len(dealt))
                    passes.append((start, counts / len(batch), whole))
            for start, factor, each in made.ahead(passes, self._options.rollout):
                self._start, self._factor = start, factor
                yield each

    def of_step(self, module: torch.nn.Module, step: Step) -> torch.Tensor:
        """Of the window that `steps` has come to."""
        made, options, noise = self._made, self._options, None
        if options.noise:
            random = made.on.random
            key = kernels.stream_key(random.seed, random.epoch, self._start, int(Purpose.NOISE))
            noise = made.forecasts.noise(step.graph.ids, key, options.noise)
        loss = torch.zeros((), dtype=torch.float64)
        for each in made.forecasts.steps(module, step.graph, self._start, options.rollout, noise):
            assert each.targets is not None, "windows for training have all their targets"
            loss = loss + self._weights @ made.mean_squares(each.outputs - each.targets)
        return loss * (self._factor / options.rollout)

    def local_loss(self, outputs: torch.Tensor, nodes: torch.Tensor | None = None) -> torch.Tensor:
        raise NotImplementedError("a step goes through `of_step`")
