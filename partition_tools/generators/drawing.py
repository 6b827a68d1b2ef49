"""From a distribution of edges to a graph: distinct edges without self loops, and their attributes.

Models of random graphs draw the same pair many times when degrees are skewed. Duplicates are dropped and as many edges
drawn again, which ends close to the number asked for and never above it.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import DTypeLike

from hpcgnn.graphfile.schema import RowReader
from partition_tools.generators.spec import Spec
from partition_tools.generators.tasks import random_split
from partition_tools.graph.edges import index_dtype
from partition_tools.graph.raw import RawGraph
from partition_tools.out_of_core.records import Records
from partition_tools.out_of_core.sorting import Runs
from partition_tools.workspace.scratch import Scratch

# Draws so many edges: (sources, destinations) int64, at most as many as asked for.
Draw = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]]
BLOCK = 1 << 20
ROUNDS = 12


def distinct_edges(spec: Spec, draw: Draw, scratch: Scratch) -> np.ndarray:
    """Sorted int64 keys low * n + high (src * n + dst where directed) of distinct edges, at most spec.num_edges.

    draw: (random generator, count) -> (src, dst) int64, any pairs; self loops are dropped; called by several threads.
    They are a mapped file of `scratch`.
    """
    keys: np.ndarray = np.zeros(0, np.int64)
    block = 0
    for turn in range(ROUNDS):
        missing = spec.num_edges - len(keys)
        if missing <= spec.num_edges // 1000:
            break
        counts = [min(BLOCK, missing - start) for start in range(0, missing, BLOCK)]
        keys = _merged(spec, draw, scratch, f"drawn.{turn}", keys, block, counts)
        block += len(counts)
        scratch.forget(f"drawn.{turn - 1}")
    return keys


def _keys(spec: Spec, draw: Draw, block: int, count: int) -> np.ndarray:
    """int64: keys of the edges of one block of draws, in any order."""
    src, dst = draw(spec.random("edges", block), count)
    proper = src != dst
    src, dst = src[proper], dst[proper]
    if not spec.directed:
        src, dst = np.minimum(src, dst), np.maximum(src, dst)
    return src * spec.nodes + dst


def _distinct(keys: np.ndarray) -> np.ndarray:
    """The distinct ones of sorted keys."""
    return keys[np.concatenate([[True], keys[1:] != keys[:-1]])] if len(keys) else keys


def _merged(
    spec: Spec, draw: Draw, scratch: Scratch, name: str, keys: np.ndarray, first: int, counts: list[int]
) -> np.ndarray:
    """Distinct keys: earlier ones, and those of blocks of draws from the block `first` on, of so many draws each."""
    runs = Runs(scratch, f"{name}.runs", sum(counts) + len(keys))
    blocks = max(1, runs.size // BLOCK)
    groups = [range(start, min(start + blocks, len(counts))) for start in range(0, len(counts), blocks)]

    def make(index: int) -> Records:
        return Records(np.concatenate([_keys(spec, draw, first + block, counts[block]) for block in groups[index]]))

    def earlier(index: int) -> Records:
        return Records(np.array(keys[index * runs.size : (index + 1) * runs.size]))

    total = sum(counts)
    with scratch.reporter.bar(total, f"drawing {total:,} edges", "edges") as advance:
        runs.form(make, len(groups), advance)
    runs.form(earlier, -(-len(keys) // runs.size))
    with (
        scratch.reporter.bar(len(runs), "merging those drawn", "edges") as advance,
        scratch.appending(name, np.int64) as append,
    ):
        for distinct in runs.merged(lambda records: _distinct(records.key), advance):
            append(distinct)
    runs.remove()
    return scratch.load(name)


class EdgeColumn:
    """An array-like vector over edges that computes each slice when it is read.

    function(start, stop, reverse) -> values of the edges start … stop, or of their reverses. both: whether the `count`
    reverses follow the `count` edges.
    """

    def __init__(
        self, count: int, dtype: DTypeLike, both: bool, function: Callable[[int, int, bool], np.ndarray]
    ) -> None:
        self.count, self.function = count, function
        self.shape, self.dtype = (count * (2 if both else 1),), np.dtype(dtype)

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(self.shape[0])
        middle = min(max(start, self.count), max(stop, start))
        found = [self.function(start, middle, False)] if start < middle else []
        found += [self.function(middle - self.count, stop - self.count, True)] if middle < stop else []
        return np.concatenate([np.zeros(0, self.dtype), *found])


def raw_graph(
    spec: Spec,
    model: str,
    keys: np.ndarray,
    features: RowReader,
    labels: np.ndarray,
    draw_types: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray] | None = None,
    node_type: np.ndarray | None = None,
) -> RawGraph:
    """The `RawGraph` of distinct edges: both directions unless directed, with one weight and type per edge of either.

    draw_types: (src, dst, uniform draws (count, 2)) -> types int32 of the edges; None to draw them at random.
    """
    count, both = len(keys), not spec.directed
    dtype = index_dtype(spec.nodes)

    def ends(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        low, high = np.divmod(keys[start:stop], spec.nodes)
        return low.astype(dtype), high.astype(dtype)

    def weights(start: int, stop: int, reverse: bool) -> np.ndarray:
        drawn = spec.some("weights", count, start, stop, lambda random, number: random.uniform(0.5, 1.5, number))
        return drawn.astype(np.float32)

    def types(start: int, stop: int, reverse: bool) -> np.ndarray:
        if draw_types is not None:
            draws = spec.some("types", count, start, stop, lambda random, number: random.random((number, 2)))
            return draw_types(*ends(start, stop), draws)
        return spec.some(
            "types", count, start, stop, lambda random, number: random.integers(0, spec.edge_types, number, np.int32)
        )

    return RawGraph(
        src=EdgeColumn(count, dtype, both, lambda start, stop, reverse: ends(start, stop)[1 if reverse else 0]),
        dst=EdgeColumn(count, dtype, both, lambda start, stop, reverse: ends(start, stop)[0 if reverse else 1]),
        num_nodes=spec.nodes,
        features=features if spec.features else None,
        labels=labels,
        split=random_split(spec),
        num_classes=spec.classes,
        weight=EdgeColumn(count, np.float32, both, weights) if spec.weighted else None,
        type=EdgeColumn(count, np.int32, both, types) if spec.edge_types else None,
        source=model,
        identity=spec.identity(model),
        seed=spec.seed,
        node_type=node_type,
    )
