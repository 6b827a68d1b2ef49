"""Forecasts of the graph of a file."""

from dataclasses import replace

from hpcgnn.app.choosing_maps import map_of_one_process
from hpcgnn.config import Config
from hpcgnn.errors import ConfigError
from hpcgnn.estimate.counts.between_nodes import Nodes
from hpcgnn.estimate.counts.shares import Counter, Shares
from hpcgnn.estimate.forecast import Forecast, Forecaster
from hpcgnn.estimate.trial.trial import Experiment
from hpcgnn.graph.opening import check_trainable
from hpcgnn.graph.transforms.vertex_cover import saves
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.memory.available import huge_pages
from hpcgnn.plan.run_plan import RunPlan, plan, rows_in_place_pay


class CountedGraph:
    """The graph of an open GraphFile. It caches the last counts and trials.

    Attributes:
        per_node: number of ranks on a node, if known.
    """

    def __init__(self, file: GraphFile, per_node: int | None = None) -> None:
        check_trainable(file)
        self._file, self._per_node = file, per_node
        self._counted: tuple[object, Counter, Shares] | None = None
        self._forecaster = _Forecasters()

    def forecast(self, config: Config, ranks: int) -> Forecast:
        """Return the Forecast of a configuration on so many ranks. Raises ConfigError, or GraphError."""
        decided = plan(config, self._file.meta)
        if not decided.task.labels:
            raise ConfigError(
                f"estimate counts the messages of tasks of labels, got --task {decided.config.task.task}; train a few "
                "epochs, and use what summary.json has of their bytes and memory"
            )
        between = self._between(decided, ranks)
        if decided.in_place and between is None:
            decided = decided.changed(intra_node="messages")
        counter, shares = self._count(decided.config, ranks, decided.halo, between)
        decided = decided.deciding(between is not None and saves(*shares.crossing))
        if between is not None and not decided.in_place:
            counter, shares = self._count(decided.config, ranks, decided.halo, None)
        config, keeps_input = decided.config, decided.spec.keeps_input
        steps = decided.entry.count_steps(decided, counter)
        if steps is not None:
            return self._forecaster(decided).forecast(replace(shares, steps=steps), steps.halos)
        return self._forecaster(decided).forecast(
            shares, lambda worthwhile, prunable: counter.layers(shares, keeps_input, worthwhile, prunable)
        )

    def _between(self, decided: RunPlan, ranks: int) -> Nodes | None:
        """The Nodes that exchange rows, where their ranks read each other's in place, or may."""
        per_node = min(ranks, self._per_node or 1)
        may = decided.may_read_in_place and per_node < ranks and rows_in_place_pay(per_node, huge_pages())
        pays = decided.in_place or may
        if not pays or per_node == 1:
            return None
        return Nodes(ranks, per_node, decided.returns, decided.narrows)

    def _count(self, config: Config, ranks: int, halo: str, between: Nodes | None) -> tuple[Counter, Shares]:
        key = config.data, config.schedule.assignment, config.run.seed, config.task, ranks, halo, between
        if self._counted is None or self._counted[0] != key:
            self._counted = None  # its memory goes before the next takes some
            counter = Counter(self._file, map_of_one_process(self._file, config, ranks)[1], ranks, halo, between)
            self._counted = key, counter, count(config, counter)
        return self._counted[1:]


def count(config: Config, counter: Counter) -> Shares:
    """The Shares of the ranks, with the training subgraph. config: resolved."""
    if not config.data.inductive:
        return counter.shares()
    among = counter.trained_on()
    induced = counter.taking(lambda ends, others: among[ends] & among[others])
    return replace(counter.shares(), seen=induced.shares(among))


class _Forecasters:
    """The Forecaster of a configuration: the last one is kept, for it has tried the model on a small graph."""

    def __init__(self) -> None:
        self._last: tuple[Config, Forecaster] | None = None

    def __call__(self, plan: RunPlan) -> Forecaster:
        if self._last is None or self._last[0] != plan.config:
            self._last = plan.config, Forecaster(Experiment.of(plan))
        return self._last[1]
