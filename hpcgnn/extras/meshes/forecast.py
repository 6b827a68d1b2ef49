"""Steps of a model in time, from snapshots: the inputs of a step, its outputs and targets, and the next inputs."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from hpcgnn import kernels
from hpcgnn.comm.communicator import Communicator
from hpcgnn.extras.meshes.frames import Frames
from hpcgnn.extras.meshes.scaling import Scaling
from hpcgnn.extras.meshes.windows import FieldColumns, Windows
from hpcgnn.nn.graph import Graph


class FieldStep(NamedTuple):
    """A step of the model.

    Attributes:
        time: the place of the targets among the snapshots.
        outputs: (n_p, C), standardised, with gradients.
        targets: (n_p, C), likewise; None where there are none.
        values: (n_p, C), the predicted fields in their units; those of given nodes are the true ones.
        truth: (n_p, C), the true ones, or None.
    """

    time: int
    outputs: torch.Tensor
    targets: torch.Tensor | None
    values: torch.Tensor
    truth: torch.Tensor | None


@dataclass(frozen=True)
class Forecasts:
    """How a model goes from snapshot to snapshot.

    Attributes:
        frames: of own nodes.
        given: bool (n_p, 1), nodes whose values are given, or None.
        dtype: of inputs and outputs.
    """

    columns: FieldColumns
    windows: Windows
    frames: Frames
    scaling: Scaling
    given: torch.Tensor | None
    dtype: torch.dtype

    def inputs(self, time: int) -> torch.Tensor:
        """The input fields at a time: (n_p, F) in their units."""
        frame = self.frames[time]
        return torch.cat([frame[name] for name in self.columns.inputs], 1)

    def targets(self, time: int) -> torch.Tensor:
        """The target fields at a time, likewise."""
        frame = self.frames[time]
        return torch.cat([frame[name] for name in self.columns.targets], 1)

    def base(self, inputs: torch.Tensor) -> torch.Tensor | float:
        """What a step's outputs are changes of: (n_p, C), or 0."""
        return inputs[:, self.columns.back] if self.columns.change else 0.0

    def ask(self, starts: Iterable[int], steps: int) -> None:
        """Begin to read the snapshots of the windows of these starts."""
        for start in starts:
            self.frames.ask(self.windows.times(start, steps))

    def learn_scaling(self, starts: Sequence[int], comm: Communicator) -> None:
        """Learn the scaling from the windows of these starts. Collective."""

        def pairs() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
            for number, start in enumerate(starts):
                self.ask(starts[number : number + 2], 1)
                inputs = self.inputs(start)
                yield inputs, self.targets(start + self.windows.lag) - self.base(inputs)

        self.scaling.learn(pairs(), comm)

    def steps(
        self, module: torch.nn.Module, graph: Graph, start: int, count: int, noise: torch.Tensor | None = None
    ) -> Iterator[FieldStep]:
        """The forecasts of `count` steps from the last time of the inputs. Collective.

        noise: (n_p, F), added to the inputs at that time. Fields that are inputs and no targets are read at each time;
        beyond the last snapshot of the trajectory they stay as they are there.
        """
        columns, lag, scaling = self.columns, self.windows.lag, self.scaling
        last = self.windows.last(start)
        mean, deviation = (each.to(self.dtype) for each in (scaling.input_mean, scaling.input_deviation))
        shift, factor = (each.to(self.dtype) for each in (scaling.target_mean, scaling.target_deviation))
        seen = [self.inputs(start + k * lag) for k in range(1 - self.windows.history, 1)]
        if noise is not None:
            seen[-1] = seen[-1] + noise
        for time in range(start + lag, start + count * lag + 1, lag) if lag else [start]:
            more = time < start + count * lag
            self.frames.ask(min(each, last) for each in ((time, time + lag) if more else (time,)))
            outputs = module(graph.with_columns(*((each - mean) / deviation for each in seen)))
            base, read = self.base(seen[-1]), min(time, last)
            truth = self.targets(time) if time <= last else None
            targets = None if truth is None else (truth - base - shift) / factor
            values = base + outputs * factor + shift
            if self.given is not None:
                values = torch.where(self.given, self.targets(read), values)
            yield FieldStep(time, outputs, targets, values, truth)
            if not more:
                break
            back = [(column, place) for column, place in enumerate(columns.back) if place >= 0]
            following = self.inputs(read).clone()
            following[:, [place for _, place in back]] = values[:, [column for column, _ in back]]
            seen = [*seen[1:], following]

    def noise(self, ids: torch.Tensor, key: int, deviation: float) -> torch.Tensor:
        """(n_p, F): normal numbers for the input columns that are targets and nodes that are not given, else 0. A
        number depends on the key, the node's id and the column alone (Box and Muller, 1958).
        """
        width = self.columns.num_inputs
        words = kernels.random_words(key, ids, 2 * width).double().add_(0.5).div_(2.0**32)
        normal = (-2 * words[:, :width].log()).sqrt_().mul_((2 * torch.pi * words[:, width:]).cos_())
        moved = torch.zeros(width, dtype=torch.float64)
        moved[[place for place in self.columns.back if place >= 0]] = deviation
        normal *= moved * self.scaling.input_deviation
        return (normal if self.given is None else normal.masked_fill_(self.given, 0)).to(self.dtype)
