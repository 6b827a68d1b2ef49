"""Where estimates have a graph from: a file, whose halos are counted, or what is assumed of one."""

from typing import Protocol

from hpcgnn.config import Config
from hpcgnn.estimate.arguments import Stats
from hpcgnn.estimate.assumed import assumed_meta, assumed_shares
from hpcgnn.estimate.forecast import Forecast, Forecaster
from hpcgnn.estimate.shares import Counter, Shares
from hpcgnn.estimate.trial import Experiment
from hpcgnn.graph.opening import check_trainable
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.schedules.schedule_registry import check_halo, halo_of
from hpcgnn.tasks.registry import resolve_task
from hpcgnn.train.choosing_maps import map_of_one_process
from hpcgnn.train.job import check_lost_ranks
from hpcgnn.train.model_spec import model_spec


class Source(Protocol):
    """A graph to be trained on."""

    def forecast(self, config: Config, ranks: int) -> Forecast:
        """The Forecast of a configuration on so many ranks. Raises ConfigError or GraphError where there is none."""


class CountedGraph:
    """The graph of an open GraphFile. What was counted and tried out last is kept for the next call."""

    def __init__(self, file: GraphFile) -> None:
        check_trainable(file)
        self._file = file
        self._counted: tuple[object, Counter, Shares] | None = None
        self._forecaster = _Forecasters()

    def forecast(self, config: Config, ranks: int) -> Forecast:
        """See Source."""
        check_lost_ranks(config, ranks)
        config = resolve_task(config, self._file.meta)
        spec = model_spec(self._file.meta, config)
        check_halo(config, spec)
        counter, shares = self._count(config, ranks, halo_of(config, spec))
        return self._forecaster(spec, config, self._file.meta.task).forecast(
            shares, lambda worthwhile, prunable: counter.layers(shares, spec.keeps_input, worthwhile, prunable)
        )

    def _count(self, config: Config, ranks: int, halo: str) -> tuple[Counter, Shares]:
        key = config.data, config.schedule.assignment, config.run.seed, ranks, halo
        if self._counted is None or self._counted[0] != key:
            self._counted = None  # its memory goes before the next takes some
            counter = Counter(self._file, map_of_one_process(self._file, config, ranks)[1], ranks, halo)
            self._counted = key, counter, counter.shares()
        return self._counted[1:]


class AssumedGraph:
    """A graph that is known by numbers. cut_share, train_share: see `assumed_shares`."""

    def __init__(self, stats: Stats, cut_share: float, train_share: float) -> None:
        self._stats, self._shares = stats, (cut_share, train_share)
        self._forecaster = _Forecasters()

    def forecast(self, config: Config, ranks: int) -> Forecast:
        """See Source."""
        check_lost_ranks(config, ranks)
        meta = assumed_meta(self._stats, config.task.task)
        config = resolve_task(config, meta)
        forecaster = self._forecaster(model_spec(meta, config), config, meta.task)
        return forecaster.forecast(assumed_shares(self._stats, ranks, *self._shares))


class _Forecasters:
    """The Forecaster of a configuration: the last one is kept, for it has tried the model on a toy graph."""

    def __init__(self) -> None:
        self._last: tuple[Config, Forecaster] | None = None

    def __call__(self, spec: ModelSpec, config: Config, task: str) -> Forecaster:
        if self._last is None or self._last[0] != config:
            self._last = config, Forecaster(Experiment.of(spec, config, task))
        return self._last[1]
