"""Held-out edges on their way into the file, under OGB's names: checked, and compared with each other and the graph.

A pair that is also an edge of the graph gives itself away to a model that passes messages along that edge. The import
warns of it, and of what else distorts metrics, and goes on: in data split by time (ogbl-collab) some pairs are joined
again later, and the published figures count them.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from hpcgnn.errors import GraphError
from hpcgnn.graphfile.given_links import COUNTS, HELD
from hpcgnn.graphfile.schema import Edges, GivenLinks, RowReader
from partition_tools.graph.counts import BLOCK
from partition_tools.graph.edges import index_dtype

#: Arrays of a split, by OGB's names: pairs (m, 2) and pairs that they are compared with (k, 2); or the two ends of each
#: (m,), and nodes in place of the second one (m, N).
PAIRS, SHARED, SOURCE, TARGET, EACH = "edge", "edge_neg", "source_node", "target_node", "target_node_neg"
NAMES = (PAIRS, SHARED, SOURCE, TARGET, EACH)


def canonical_links(links: Mapping[str, Mapping[str, np.ndarray]], num_nodes: int) -> dict[str, GivenLinks]:
    """The file's arrays of each split: (m, 2), (k, 2) and (m, N), in the type of node ids.

    Raises GraphError for arrays that do not go together, name other nodes, or are of two kinds in val and test.
    """
    found = {split: _canonical(split, links[split], num_nodes) for split in HELD if split in links}
    kinds = {split: (each.negatives is None, each.negative_targets is None) for split, each in found.items()}
    if len(set(kinds.values())) > 1:
        raise GraphError(
            f"the negatives of val and test are of two kinds; expected {SHARED} in both, {EACH} in both, or none"
        )
    return found


def _canonical(split: str, arrays: Mapping[str, np.ndarray], num_nodes: int) -> GivenLinks:
    named = {part: f"{split}_{part}" for part in NAMES}
    if PAIRS in arrays and not {SOURCE, TARGET} & set(arrays):
        edges = _pairs(arrays[PAIRS], named[PAIRS], num_nodes)
    elif {SOURCE, TARGET} <= set(arrays) and PAIRS not in arrays:
        ends = [_nodes(arrays[part], named[part], num_nodes, 1) for part in (SOURCE, TARGET)]
        if len(ends[0]) != len(ends[1]):
            raise GraphError(f"{named[SOURCE]} has {len(ends[0])} nodes and {named[TARGET]} {len(ends[1])}")
        edges = np.stack(ends, 1)
    else:
        raise GraphError(
            f"the held-out edges of {split} need {named[PAIRS]}, or {named[SOURCE]} and {named[TARGET]}; got "
            f"{', '.join(named[part] for part in arrays)}"
        )
    if SHARED in arrays and EACH in arrays:
        raise GraphError(f"{split} has both {named[SHARED]} and {named[EACH]}; leave one of them out")
    shared = _pairs(arrays[SHARED], named[SHARED], num_nodes) if SHARED in arrays else None
    each = _nodes(arrays[EACH], named[EACH], num_nodes, 2) if EACH in arrays else None
    if each is not None and len(each) != len(edges):
        raise GraphError(f"{named[EACH]} has {len(each)} rows, expected {len(edges)}, one for each edge")
    for part, negatives in ((SHARED, shared), (EACH, each)):
        if negatives is not None and negatives.size == 0 and len(edges):
            raise GraphError(f"{named[part]} is empty; leave it out, and negatives are drawn")
    return GivenLinks(edges, shared, each)


def _pairs(array: np.ndarray, what: str, num_nodes: int) -> np.ndarray:
    if array.ndim == 2 and array.shape[1] != 2 and array.shape[0] == 2:
        raise GraphError(f"{what} must have shape (m, 2), got {array.shape}; turn it: {what}.T")
    array = _nodes(array, what, num_nodes, 2)
    if array.shape[1] != 2:
        raise GraphError(f"{what} must have shape (m, 2), got {array.shape}")
    return array


def _nodes(array: np.ndarray, what: str, num_nodes: int, axes: int) -> np.ndarray:
    if array.ndim != axes or (array.size and array.dtype.kind not in "iu"):
        raise GraphError(f"{what} must be node ids, integers in {axes} dimensions, got {array.dtype}{array.shape}")
    if array.size and not 0 <= array.min() <= array.max() < num_nodes:
        wrong = array[(array < 0) | (array >= num_nodes)][0]
        raise GraphError(f"{what} names node {wrong}, outside the nodes 0..{num_nodes - 1}")
    return array.astype(index_dtype(num_nodes), copy=False)


def link_counts(
    links: Mapping[str, GivenLinks], edges: Edges, place: np.ndarray | None = None
) -> dict[str, dict[str, int]]:
    """{split: {name of `given_links.COUNTS`: number}} of held-out edges. Memory: 8 bytes for each, and blocks.

    edges: grouped by destination, ascending. place: int (n,), the row of each original id in the file; None: the id is
    the row.
    """

    def key(source: np.ndarray, target: np.ndarray) -> np.ndarray:
        return np.minimum(source, target) * np.int64(len(edges.indptr) - 1) + np.maximum(source, target)

    def both_ways(source: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        one, other = (source, target) if place is None else (place[source], place[target])
        return _are_edges(edges, one, other), _are_edges(edges, other, one)

    keys = {split: np.concatenate([key(*pair) for pair in _blocks(given.edges)]) for split, given in links.items()}
    found = {}
    for split, given in links.items():
        counts = dict.fromkeys(COUNTS, 0)
        others = np.concatenate([keys[other] for other in keys if other != split] or [keys[split][:0]])
        counts["in_both_splits"] = int(np.count_nonzero(np.isin(keys[split], others)))
        counts["repeated"] = len(keys[split]) - len(np.unique(keys[split]))
        for source, target in _blocks(given.edges):
            there, turned = both_ways(source, target)
            counts["among_edges"] += int(np.count_nonzero(there))
            counts["reverses_among_edges"] += int(np.count_nonzero(turned & ~there))
            counts["self_pairs"] += int(np.count_nonzero(source == target))
        held = np.unique(np.concatenate([*keys.values()]))
        for source, target in _negatives(given):
            counts["negatives_among_edges"] += int(np.count_nonzero(np.logical_or(*both_ways(source, target))))
            counts["negatives_held_out"] += int(np.count_nonzero(np.isin(key(source, target), held)))
        found[split] = counts
    return found


def _blocks(pairs: RowReader) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(sources, targets) int64 (m,) of pairs (m, 2), some at a time, at least once."""
    for start in range(0, max(1, pairs.shape[0]), BLOCK):
        source, target = np.asarray(pairs[start : start + BLOCK], np.int64).T
        yield source, target


def _negatives(given: GivenLinks) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The same of all pairs that held-out edges are compared with."""
    if given.negatives is not None:
        yield from _blocks(given.negatives)
    if (targets := given.negative_targets) is not None:
        step = max(1, BLOCK // max(1, targets.shape[1]))
        for start in range(0, targets.shape[0], step):
            some = np.asarray(targets[start : start + step], np.int64)
            source = np.asarray(given.edges[start : start + step], np.int64)[:, 0]
            yield np.repeat(source, some.shape[1]), some.reshape(-1)


def _are_edges(edges: Edges, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """bool (m,): whether there is an edge from source to target, by a binary search in all rows at once."""
    low, end = edges.indptr[target].copy(), edges.indptr[target + 1]
    high = end.copy()
    while len(open_ := np.flatnonzero(low < high)):
        middle = (low[open_] + high[open_]) // 2
        less = edges.indices[middle] < source[open_]
        low[open_[less]], high[open_[~less]] = middle[less] + 1, middle[~less]
    inside = low < end
    inside[inside] = edges.indices[low[inside]] == source[inside]
    return inside
