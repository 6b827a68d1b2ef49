"""From a distribution of edges to a graph: distinct edges without self loops, and their attributes.

Models of random graphs draw the same pair many times when degrees are skewed. Duplicates are dropped and as many edges
drawn again, which ends close to the number asked for and never above it.
"""

from collections.abc import Callable

import numpy as np

from hpcgnn.graphfile.schema import Rows
from partition_tools.edges import index_dtype
from partition_tools.generators.spec import Spec
from partition_tools.raw import RawGraph

# Draws so many edges: (sources, destinations) int64, at most as many as asked for.
Draw = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]]
BLOCK = 1 << 20
ROUNDS = 12


def distinct_edges(spec: Spec, draw: Draw) -> np.ndarray:
    """Sorted int64 keys low * n + high (src * n + dst where directed) of distinct edges, at most spec.num_edges.

    draw: (random generator, count) -> (src, dst) int64, any pairs; self loops are dropped. Memory: 8 bytes per edge for
    the keys, as much again while new ones are merged, and one block.
    """
    n, wanted = spec.nodes, spec.num_edges
    keys, block = np.zeros(0, np.int64), 0
    for _ in range(ROUNDS):
        missing = wanted - len(keys)
        if missing <= wanted // 1000:
            break
        parts = []
        for start in range(0, missing, BLOCK):
            src, dst = draw(spec.random("edges", block), min(BLOCK, missing - start))
            block += 1
            proper = src != dst
            src, dst = src[proper], dst[proper]
            if not spec.directed:
                src, dst = np.minimum(src, dst), np.maximum(src, dst)
            parts.append(src * n + dst)
        fresh = np.sort(np.concatenate(parts))
        keys = np.sort(np.concatenate([keys, fresh]), kind="stable") if len(keys) else fresh  # merges two sorted runs
        keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])] if len(keys) else keys
    return keys


def raw_graph(
    spec: Spec,
    model: str,
    keys: np.ndarray,
    features: Rows,
    labels: np.ndarray,
    split: dict[str, np.ndarray],
    draw_types: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
    node_type: np.ndarray | None = None,
) -> RawGraph:
    """The `RawGraph` of distinct edges: both directions unless directed, with one weight and type per edge of either.

    draw_types: (src, dst) -> types int32 of the edges; None to draw them at random.
    """
    dtype = index_dtype(spec.nodes)
    first, second = (keys // spec.nodes).astype(dtype), (keys % spec.nodes).astype(dtype)
    weight = kind = None
    if spec.weighted:
        weight = spec.blocks(
            "weights", len(keys), lambda random, count: random.uniform(0.5, 1.5, count).astype(np.float32)
        )
    if spec.edge_types:
        kind = (
            draw_types(first, second)
            if draw_types
            else spec.blocks(
                "types", len(keys), lambda random, count: random.integers(0, spec.edge_types, count, np.int32)
            )
        )
    src, dst = first, second
    if not spec.directed:
        src, dst = np.concatenate([first, second]), np.concatenate([second, first])
        weight, kind = (None if a is None else np.concatenate([a, a]) for a in (weight, kind))
    return RawGraph(
        src,
        dst,
        spec.nodes,
        features if spec.features else None,
        labels,
        split,
        spec.classes,
        weight,
        kind,
        model,
        spec.identity(model),
        spec.seed,
        node_type,
    )
