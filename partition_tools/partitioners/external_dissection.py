"""Clusters of a graph that does not fit memory.

KaMinPar, which keeps the whole graph compressed, splits it into a few parts. The edges within each part are written
apart, and `partitioners.dissection` dissects a part that fits further in memory. So the large cuts are chosen on the
whole graph, and the largest part decides the memory.
"""

from collections.abc import Callable

import numpy as np
import scipy.sparse

from partition_tools.partitioners.dissection import Split, dissect, enough
from partition_tools.partitioners.kaminpar import kaminpar_split
from partition_tools.partitioners.parhip import write_parhip
from partition_tools.partitioners.pattern import Pattern, parts_of, whole_pattern
from partition_tools.partitioners.request import ClusterRequest, Clusters
from partition_tools.partitioners.weights import BRANCHES, at_most_a_part, clusters_of_connected, with_isolated
from partition_tools.workspace.scratch import Scratch

#: Bytes for an edge of a part while it is dissected in memory: the part, its parts, and the process that splits it.
PART_BYTES = 40


def external_clusters(asked: ClusterRequest, split: Split, scratch: Scratch) -> Clusters:
    """The clusters of a graph whose indices may be anything that slices.

    split: dissects parts that fit in memory. Memory: KaMinPar's for the whole graph (see `partition --help`), else the
    scratch directory's limit, and 40 bytes per node.
    """
    num_clusters, seed, progress = asked.num_clusters, asked.seed, asked.progress
    if not scratch.done("order"):
        whole, num_nodes = whole_pattern(asked.edges, asked.edges_out, scratch), len(asked.edges.indptr) - 1
        connected = clusters_of_connected(num_nodes, len(whole.nodes), num_clusters)
        progress(num_clusters - connected)
        pending, leaves = [(whole, connected)], []
        while pending:
            part, count = pending.pop()
            begun = scratch.done(f"{part.name}.clusters.offsets"), scratch.done(f"{part.name}.side")
            fits = begun[0] or (not begun[1] and part.num_entries * PART_BYTES <= scratch.memory)
            if count == 1 or fits:
                leaves += _in_memory(part, count, split, seed, scratch, progress)
                continue
            shares = np.full(min(BRANCHES, count), count // min(BRANCHES, count))
            shares[: count % len(shares)] += 1
            parts = parts_of(part, _side(part, shares, seed, scratch), len(shares))
            part.forget()
            pending += reversed(list(zip(parts, shares.tolist(), strict=True)))
        order, offsets = with_isolated(leaves, whole.nodes, num_nodes, num_clusters)
        scratch.save("offsets", offsets)
        scratch.save("order", order)
    return np.array(scratch.load("order")), np.array(scratch.load("offsets"))


def _side(part: Pattern, shares: np.ndarray, seed: int, scratch: Scratch) -> np.ndarray:
    """The part of each node, by KaMinPar; kept in the scratch directory."""
    name = f"{part.name}.side"
    if not scratch.done(name):
        size = f"{len(part.nodes):,} nodes, {part.num_entries:,} edges"
        scratch.reporter.stage(f"splitting {size} into {len(shares)} parts")
        path = scratch.directory / f"{part.name}.parhip"
        try:
            weights = at_most_a_part(part.weights, shares)
            write_parhip(path, len(part.nodes), part.degrees, part.blocks(), weights, part.edge_weights())
            side = kaminpar_split(path, len(shares), seed, shares=shares)
        finally:
            path.unlink(missing_ok=True)
        enough(side, shares)
        scratch.save(name, side.astype(np.uint8))
    return np.array(scratch.load(name))


def _in_memory(
    part: Pattern, count: int, split: Split, seed: int, scratch: Scratch, progress: Callable[[int], object]
) -> list[np.ndarray]:
    """The nodes of each of `count` clusters of a part."""
    name = f"{part.name}.clusters"
    if count == 1:
        progress(1)
        return [part.nodes]
    if not scratch.done(f"{name}.offsets"):
        indices, heavy = np.array(part.indices), part.edge_weights()
        values = np.ones(len(indices), np.uint8) if heavy is None else np.concatenate([np.zeros(0, np.uint8), *heavy])
        graph = scipy.sparse.csr_matrix((values, indices, part.indptr), shape=(len(part.nodes),) * 2)
        order, offsets = dissect(graph, count, split, seed, progress, part.weights)
        scratch.save(f"{name}.order", order)
        scratch.save(f"{name}.offsets", offsets)
    else:
        progress(count)
    part.forget()
    order, offsets = np.array(scratch.load(f"{name}.order")), scratch.load(f"{name}.offsets")
    return np.split(part.nodes[order], offsets[1:-1])
