"""The metrics of fields: errors of one step over the windows of a split, and of forecasts of forecasts."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from hpcgnn.errors import ConfigError
from hpcgnn.extras.meshes.frames import Frame
from hpcgnn.extras.meshes.setting import HELD, FieldSetting
from hpcgnn.nn.graph import Graph
from hpcgnn.tasks.base import Judge, Metric, Task


def _of_windows(*given: Any) -> float:
    """Outputs and labels alone have no windows: `FieldsEvaluator` makes the score."""
    return math.nan


#: The root of the mean square of standardised errors of one step: 1 is as good as the mean of training.
NRMSE = Metric(_of_windows, lower=True)


@dataclass(frozen=True)
class JudgedModel:
    """A model and the graph that it sees."""

    model: torch.nn.Module
    graph: Graph


class FieldForecast(NamedTuple):
    """The fields after a step, {field: (n_p, F) in its units}, and their RMSE where the file has that time.

    place: among the snapshots of the graph file, -1 for none.
    """

    time: float
    place: int
    fields: dict[str, torch.Tensor]
    rmse: dict[str, float] | None


class FieldsEvaluator(Judge):
    """Judges forecasts by the windows of the validation and test times. Made collectively."""

    def __init__(self, task: Task, made: FieldSetting) -> None:
        self._made, self._comm = made, made.on.comm
        self.task, self.name, self.metric = task, "nrmse", NRMSE
        self.counts = {split: len(made.windows.starts(split)) for split in ("train", *HELD)}

    def rows(self) -> list[Frame]:
        return self._made.forecasts.frames.held()

    def outputs(self, model: torch.nn.Module, graph: Graph) -> JudgedModel:
        return JudgedModel(model, graph)

    def scores(self, outputs: JudgedModel) -> dict[str, Any]:
        """{'train': NaN, 'val': nrmse, 'test': …, 'fields': {split: {field: RMSE of one step in its units}}}, of splits
        with windows. Collective.
        """
        made, found, tables = self._made, dict.fromkeys(("train", *HELD), math.nan), {}
        weights = torch.tensor(made.columns.weights, dtype=torch.float64)
        for split in self._splits():
            starts = made.windows.starts(split).tolist()
            squares = torch.zeros(made.columns.num_targets, dtype=torch.float64)
            for start, counts in made.ahead(made.dealt(starts)):
                squares += counts * next(self._squares(outputs, start, 1))
            squares = self._comm.total(squares) / len(starts)
            relative = squares / made.forecasts.scaling.target_deviation.square()
            found[split] = float((weights @ relative / weights.sum()).sqrt())
            tables[split] = self._by_field(squares)
        return {**found, "fields": tables}

    def report(self, outputs: JudgedModel, names: Sequence[str]) -> dict[str, Any]:
        """`scores`, and 'forecast': {'rmse': {split: {field: [RMSE after each step]}}}, where each step sees the one
        before. A forecast begins with the first window of a trajectory, and ends with the split. Collective.
        """
        found: dict[str, Any] = {}
        for split in self._splits():
            squares: list[torch.Tensor] = []
            begins = list(self._made.windows.rollouts(split))
            for start, count in begins:
                for step, each in enumerate(self._squares(outputs, start, count)):
                    squares[step : step + 1] = [squares[step] + each if step < len(squares) else each]
            lasting = [sum(count > step for _, count in begins) for step in range(len(squares))]
            means = [
                self._comm.total(each) / (count * self._made.replicas)
                for each, count in zip(squares, lasting, strict=True)
            ]
            by_step = [self._by_field(each) for each in means]
            found[split] = {name: [each[name] for each in by_step] for name in self._made.columns.targets}
        return {**self.scores(outputs), "forecast": {"rmse": found}}

    def forecasts(self, outputs: JudgedModel, start: int | None, count: int) -> Iterator[FieldForecast]:
        """The forecast of each step. Behind the trajectory times go on with its last distance. Collective. Raises
        ConfigError, on all ranks.
        """
        windows, times = self._made.windows, self._made.times
        least = (windows.history - 1) * windows.lag
        start = least if start is None else start
        inside = least <= start < len(times) and windows.trajectory[start - least] == windows.trajectory[start]
        if not inside or count < 1 or (count > 1 and not windows.lag):
            raise ConfigError.on_all(
                f"--start {start} --steps {count}: expected a snapshot of 0 … {len(times) - 1} that has {least} of its "
                "trajectory before it, and steps from 1 on (1 where --lag is 0)"
            )
        yield from self._forecasts(outputs, start, count)

    def one_step(self, outputs: JudgedModel, split: str) -> Iterator[FieldForecast]:
        """The forecast of one step of each window of a split. Collective."""
        for start, _ in self._made.ahead([(start, True) for start in self._made.windows.starts(split).tolist()]):
            yield from self._forecasts(outputs, start, 1)

    def _forecasts(self, outputs: JudgedModel, start: int, count: int) -> Iterator[FieldForecast]:
        windows, times, targets = self._made.windows, self._made.times, self._made.columns.targets
        last = windows.last(start)
        inner = last > 0 and windows.trajectory[last - 1] == windows.trajectory[last]
        distance = float(times[last] - times[last - 1]) if inner else 1.0
        with torch.no_grad():
            for each in self._made.forecasts.steps(outputs.model, outputs.graph, start, count):
                behind = max(0, each.time - last)
                time = float(times[each.time - behind]) + behind * distance
                parts = each.values.split(list(targets.values()), 1)
                errors = None
                if each.truth is not None:
                    errors = self._by_field(self._comm.total(self._made.mean_squares(each.values - each.truth)))
                fields = dict(zip(targets, parts, strict=True))
                yield FieldForecast(time, -1 if behind else each.time, fields, errors)

    def _splits(self) -> list[str]:
        return [split for split in HELD if self.counts[split]]

    def _squares(self, outputs: JudgedModel, start: int, count: int) -> Iterator[torch.Tensor]:
        """float64 (C,) after each step: this rank's share of the mean squares of errors, in units."""
        with torch.no_grad():
            for each in self._made.forecasts.steps(outputs.model, outputs.graph, start, count):
                assert each.truth is not None, "the times of a split are those of snapshots"
                yield self._made.mean_squares(each.values - each.truth)

    def _by_field(self, squares: torch.Tensor) -> dict[str, float]:
        """{field: root of the mean square of its columns}."""
        targets = self._made.columns.targets
        parts = squares.split(list(targets.values()))
        return {name: float(part.mean().sqrt()) for name, part in zip(targets, parts, strict=True)}
