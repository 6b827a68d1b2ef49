"""Conclusions from small copies to a rank of full size, and from the ranks to the job."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from hpcgnn.app.choosing_maps import map_of_one_process
from hpcgnn.config import Config
from hpcgnn.errors import ConfigError
from hpcgnn.extras.estimate.shares import ShareCounter, Shares, Way
from hpcgnn.extras.estimate.small_copy import CopyDirection, Size
from hpcgnn.extras.estimate.traffic import CountedLanes, HaloCounts, Nodes, Place, Traffic
from hpcgnn.extras.estimate.trial import MAKING, Experiment, Trial
from hpcgnn.graph.load import check_labelled, check_trainable
from hpcgnn.graph.transforms.vertex_cover import saves
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.ops.row_tiles import TILE_ROWS
from hpcgnn.plan.run_plan import RunPlan, plan, rows_in_place_pay
from hpcgnn.plugins.account import FREE_HEAP, OBJECTS, SNAPSHOTS
from hpcgnn.tasks.registry import TASKS, task_traits

# Largest number of nodes and edges of the larger copy; the smaller copy has half of them.
NODES, EDGES = 40_000, 1_000_000
# A rank is tried at its full size where that is not much larger than the copies.
NEARLY = 0.7
# Ranks that differ by less in all that they hold are taken for the same.
ALIKE = 1.01
# Bytes of training outside of the account: workspace inside of libraries, and small objects.
OUTSIDE = 4 << 20
# Bytes of a prepared request: 1.0 to 1.25 KiB of MPICH for each of thousands.
REQUEST = 1152
# The library sums gradients in a copy of them.
SUMS = "sums of gradients under way"
#: {item of the account (plugins/account.py): part of the table}.
PARTS = {
    "features": "features",
    SNAPSHOTS: "features",
    "labels, split and ids": "structure",
    "graph structure and plan": "structure",
    "masks, scales and halo ids": "structure",
    "kept input aggregate": "activations",
    "activations and workspace": "activations",
    "arena, resident but not in use then": "activations",
    "tensors outside the arena": "activations",
    FREE_HEAP: "activations",
    "parameters, gradients, optimizer": "gradients",
    "halo buffers": "halo_buffers",
    "shared memory of MPI": "libraries",
    OBJECTS: "libraries",
    "program code, loaded since": "libraries",
    SUMS: "gradients",
}
#: layers(worthwhile, prunable) -> {Place: HaloCounts} of layers that compute some rows only.
Layers = Callable[[list[float], int], Mapping[Place, HaloCounts]]


@dataclass
class Rank:
    """One rank.

    Attributes:
        loaded: bytes of the graph.
        growth: bytes that training adds.
        parts: {part: bytes} at the peak.
        gathered, multiplied: the work of an epoch, see Trial.
    """

    loaded: int
    growth: int
    parts: dict[str, int]
    gathered: float
    multiplied: float


@dataclass
class Forecast:
    """A job on some number of ranks.

    Attributes:
        largest, busiest, mean: the Rank with the most memory, with the most edges, and with mean numbers.
        halo: {kind: Traffic} of an epoch, in the last of several stages.
        others: {kind: (messages, bytes)} of every rank's other traffic.
        evaluation: {kind: Traffic} of an evaluation.
        requests: int64 (P,), the messages that each rank prepares.
        metrics: (messages, bytes) of every rank's other traffic in it.
        counted: whether the bytes of pruned layers are counted from the graph, or derived from the copy.
        experiment: the trial behind it.
    """

    experiment: Experiment
    shares: Shares
    largest: Rank
    busiest: Rank
    mean: Rank
    halo: dict[str, Traffic]
    others: dict[str, tuple[int, int]]
    evaluation: dict[str, Traffic]
    requests: np.ndarray
    metrics: tuple[int, int]
    parameters: int
    counted: bool


def forecast(experiment: Experiment, shares: Shares, layers: Layers) -> Forecast:
    """The Forecast of a job with these Shares."""
    in_the_mean = _size(shares, np.mean)
    mean, trial = rank_of(experiment, in_the_mean, shares.degrees)
    halos: dict[Place, HaloCounts] = {
        (None, "inward"): shares.inward.travelling,
        (None, "outward"): shares.outward.travelling,
    }
    pruned = None
    if trial.prunable:
        found = layers(trial.worthwhile, trial.prunable)
        halos |= found
        pruned = len({layer for layer, _ in found})
        if pruned != trial.pruned:  # neighbourhoods in the graph are not those in a copy
            mean, trial = rank_of(experiment, in_the_mean, shares.degrees, pruned)
    ranks = {
        index: rank_of(experiment, _size(shares, itemgetter(index)), shares.degrees, pruned)[0]
        for index in _candidates(shares)
    }
    assert trial.evaluation is not None
    lanes = CountedLanes(halos, experiment.probe.row_bytes, experiment.limit)
    halo, counted = lanes.traffic(trial.uses), True
    requests = lanes.prepared(trial.streams)
    if experiment.plan.config.run.comm == "mpi":
        for rank, number in ((mean, requests.mean()), *((rank, requests[index]) for index, rank in ranks.items())):
            rank.growth += int(REQUEST * number)
            rank.parts["structure"] += int(REQUEST * number)
    inward = shares.inward.ranks  # gradients go back to those whose rows were received
    there, back = (inward.sent, inward.takers), (inward.received, inward.peers)
    ways = zip(("halo_forward", "halo_backward"), (there, back), (back, there), trial.boundary, strict=True)
    for kind, (rows, peers), (come, _), of_copy in ways:
        messages, sent = trial.sent.get(kind, (0, 0))
        if kind not in halo and sent:  # not all of the halo is sent: as the copy had it
            size, received = (np.rint(sent * (each / max(1, of_copy))).astype(np.int64) for each in (rows, come))
            halo[kind] = Traffic(size, messages * peers, received)
            counted = False
    return Forecast(
        experiment=experiment,
        shares=shares,
        largest=max((*ranks.values(), mean), key=lambda rank: rank.growth + rank.loaded),
        busiest=ranks.get(int(shares.edges.argmax()), mean),
        mean=mean,
        halo=halo,
        others={kind: each for kind, each in trial.sent.items() if not kind.startswith("halo")},
        evaluation=lanes.traffic(trial.evaluation.uses),
        requests=requests,
        metrics=trial.evaluation.summed,
        parameters=trial.parameters,
        counted=counted,
    )


def rank_of(experiment: Experiment, size: Size, degrees: np.ndarray, pruned: int | None = None) -> tuple[Rank, Trial]:
    """A Rank of this size, and the larger Trial that it follows from. pruned: see `Experiment.try_out`."""
    edges = size.inward.own + size.inward.remote
    factor = min(1.0, NODES / max(1, size.nodes), EDGES / max(1, edges))
    try_out, tile, longer = experiment.try_out, experiment.tile, 0.0
    if factor > NEARLY:
        large = small = wide = try_out(size, degrees, pruned=pruned)
        factor = 1.0
    else:
        # A tile does not grow with the rank, and may have more rows than a copy: a third copy measures its bytes.
        least = min(tile, TILE_ROWS, max(1, int(size.nodes * factor / 2)))
        large, small = (try_out(size, degrees, each, pruned, least) for each in (factor, factor / 2))
        wide, longer = large, min(tile, size.nodes) / least - 1
        if longer > 0:
            wide = try_out(size, degrees, factor, pruned, 2 * least)

    def line(a: Any, b: Any) -> Any:
        """At 1, the straight line through a at `factor` and b at half of it."""
        return a + (a - b) * ((1 - factor) / (factor / 2))

    plain = experiment.plan.config.run.comm == "mpi" and size.ranks > 1
    summed_apart = large.parameters * experiment.plan.spec.dtype.itemsize if plain else 0
    account = {
        phase: {
            item: max(0, round(line(value, small.account[phase][item]) + longer * (wide.account[phase][item] - value)))
            for item, value in items.items()
        }
        for phase, items in large.account.items()
    }
    for (stage, phase), items in account.items():
        items[SUMS] = summed_apart if phase == "reduction" else 0
        items[SNAPSHOTS] = 0 if phase == MAKING else experiment.work.held(size.nodes)
        items["halo buffers"] = min(items["halo buffers"], experiment.limit)
        # Larger tensors are not on the heap: its free part does not grow with the rank.
        items[FREE_HEAP] = large.account[stage, phase][FREE_HEAP]
    loaded = round(line(large.loaded, small.loaded))
    evaluated = experiment.plan.config.run.eval_every > 0
    held = [items for (_, phase), items in account.items() if evaluated or phase != "evaluation"]
    items = max(held, key=lambda each: sum(each.values()))
    parts = dict.fromkeys(PARTS.values(), 0)
    for item, value in items.items():
        parts[PARTS[item]] += value
    del parts["libraries"]
    work = (float(line(getattr(large, each), getattr(small, each))) for each in ("gathered", "multiplied"))
    return Rank(loaded, sum(items.values()) - loaded + OUTSIDE, parts, *work), large


def _candidates(shares: Shares) -> list[int]:
    """Return the ranks that may have the most memory or work: the most nodes, the most edges, the largest halo.

    Ranks close to the mean are left out.
    """
    columns = shares.nodes, shares.edges, shares.inward.ranks.received
    return sorted({int(each.argmax()) for each in columns if each.max() > ALIKE * each.mean()})


def _size(shares: Shares, of: Callable[[np.ndarray], float]) -> Size:
    """Return the Size of one rank. of: picks its number from the numbers of all ranks."""

    def pick(values: np.ndarray) -> int:
        return round(float(of(values)))

    def direction(way: Way) -> CopyDirection:
        """Where ranks of a node read each other's rows in place, each has a lane of the node's rows."""
        far, ranks = way.travelling, way.travelling.nodes.sizes
        received, sent = (pick(np.repeat(each / ranks, ranks)) for each in (far.received, far.sent))
        return CopyDirection(pick(way.own), pick(way.remote), received, sent, -(-far.largest // far.nodes.fewest))

    return Size(
        ranks=shares.ranks,
        nodes=pick(shares.nodes),
        train=pick(shares.train),
        outer=pick(shares.outer),
        inward=direction(shares.inward),
        outward=None if shares.outward is shares.inward else direction(shares.outward),
        entries=shares.entries,
        loops=pick(shares.loops),
    )


class CountedGraph:
    """The graph of an open GraphFile. It caches the last counts and trials.

    Attributes:
        per_node: number of ranks on a node, if known.
    """

    def __init__(self, file: GraphFile, per_node: int | None = None) -> None:
        check_trainable(file, labelled=False)
        self._file, self._per_node = file, per_node
        self._counted: tuple[object, ShareCounter, Shares] | None = None
        self._tried: tuple[Config, Experiment] | None = None

    def forecast(self, config: Config, ranks: int) -> Forecast:
        """Return the Forecast of a configuration on so many ranks. Raises ConfigError, or GraphError."""
        if task_traits(config.task.task).labels:
            check_labelled(self._file)
        decided = plan(config, self._file.meta)
        if (work := TASKS[decided.config.task.task].work(decided.config, decided.spec, self._file)) is None:
            raise ConfigError(
                f"estimate counts the messages of tasks of labels and of fields, got --task {config.task.task}; "
                "train a few epochs, and use what summary.json has of their bytes and memory"
            )
        between = self._between(decided, ranks)
        if decided.in_place and between is None:
            decided = decided.changed(intra_node="messages")
        counter, shares = self._count(decided, ranks, between)
        decided = decided.deciding(between is not None and (between.per_node == ranks or saves(*shares.crossing)))
        if between is not None and not decided.in_place:
            counter, shares = self._count(decided, ranks, None)
        if self._tried is None or self._tried[0] != decided.config:
            self._tried = decided.config, Experiment.of(decided, work)  # it has tried the model on a small graph
        return forecast(self._tried[1], shares, partial(counter.layers, shares, decided.spec.keeps_input))

    def _between(self, decided: RunPlan, ranks: int) -> Nodes | None:
        """The Nodes that exchange rows, where their ranks read each other's in place, or may."""
        per_node = min(ranks, self._per_node or 1)
        may = decided.may_read_in_place and rows_in_place_pay(per_node, ranks)
        if per_node == 1 or not (decided.in_place or may):
            return None
        return Nodes(ranks, per_node, decided.returns, decided.narrows)

    def _count(self, decided: RunPlan, ranks: int, between: Nodes | None) -> tuple[ShareCounter, Shares]:
        config, halo = decided.config, decided.halo
        key = config.data, config.run.seed, config.task, ranks, halo, between
        if self._counted is None or self._counted[0] != key:
            self._counted = None  # its memory goes before the next takes some
            counter = ShareCounter(self._file, map_of_one_process(self._file, config, ranks)[1], ranks, halo, between)
            self._counted = key, counter, counter.shares()
        return self._counted[1:]
