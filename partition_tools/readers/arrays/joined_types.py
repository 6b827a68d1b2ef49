"""Graphs that come type by type as the named arrays of one graph: PyG's HeteroData, DGL's and OGB's graphs with types.

Types of nodes follow one another, and relations are numbered, both in their order in the source. Features of a type are
the first columns of its rows. If types have different widths, the rest of a row is zeros. So the projection by type of
a relational model (nn/rgcn.py) has weights for the columns of each type alone. A type without features has rows of
zeros, from which the bias of its projection makes one learned vector.
"""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from hpcgnn.errors import FormatError
from partition_tools.canonical.rows import numbered
from partition_tools.graph.counts import blocks
from partition_tools.readers.arrays.in_memory import as_array
from partition_tools.readers.arrays.named_arrays import FEATURES, LABELS, MEMBERS
from partition_tools.workspace.progress import Reporter
from partition_tools.workspace.scratch import Scratch
from partition_tools.workspace.scratch_arrays import filled

SEPARATOR = "___"
Relation = tuple[str, str, str]
_OF_ALL_RELATIONS = ("edge_weight", "edge_attr")


def joined(
    what: str,
    nodes: Mapping[str, Mapping[str, Any]],
    edges: Mapping[Relation, Mapping[str, Any]],
    reporter: Reporter,
    scratch: Scratch | None = None,
    feature_type: DTypeLike | None = None,
) -> dict[str, Any]:
    """{name: array} of one graph with types, as `named_arrays` reads them.

    Other arrays keep their names, and are refused or left out there.

    Args:
        what: the graph's name in errors.
        nodes: {type: {name: array}} of features, labels, masks, num_nodes.
        edges: {(type, relation, type): {name: array}} of edge_index (2, E_r) within the types, an array or a pair, and
            of weights and features.
        scratch: for large edges and features of all types, which are then mapped files of it.
        feature_type: the type of all features; None: one that holds them.

    Raises:
        FormatError: arrays of a type do not fit together, or name nodes outside of it.
    """
    counts = {kind: _count(f"{what}, nodes of type {kind}", of_type) for kind, of_type in nodes.items()}
    types = _Types(what, counts, scratch)
    arrays: dict[str, Any] = {"num_nodes": sum(counts.values())}
    for name in dict.fromkeys(name for of_type in nodes.values() for name in of_type if name != "num_nodes"):
        found = {kind: of_type[name] for kind, of_type in nodes.items() if of_type.get(name) is not None}
        if name in FEATURES:
            arrays[name] = types.of_nodes(name, found, feature_type)
            _warn(found, counts, reporter)
        elif name in LABELS and len(found) > 1:
            raise FormatError(f"{what}: {', '.join(found)} have labels; expected one type of nodes with labels")
        elif name in LABELS:
            arrays[name] = types.of_nodes(name, found, np.float64, np.nan)
        elif name.endswith("_mask") and name in MEMBERS:
            arrays[name] = types.of_nodes(name, found)
        elif name in MEMBERS:
            ids = {kind: as_array(some, name) for kind, some in found.items()}
            arrays[name] = np.concatenate([types.whole(each, kind, f"{name} of {kind}") for kind, each in ids.items()])
        else:
            arrays[name] = next(iter(found.values()))
    arrays |= types.edges(edges)
    for name in dict.fromkeys(name for of_edges in edges.values() for name in of_edges if name != "edge_index"):
        parts = [of_edges.get(name) for of_edges in edges.values()]
        arrays[name] = _of_relations(what, name, parts) if name in _OF_ALL_RELATIONS else parts[0]
    names = {"node_type_names": list(nodes), "edge_type_names": [SEPARATOR.join(relation) for relation in edges]}
    node_type = np.repeat(np.arange(len(counts), dtype=np.int32), list(counts.values()))
    return arrays | {"node_type": node_type} | {name: np.array(words) for name, words in names.items()}


def _count(what: str, of_type: Mapping[str, Any]) -> int:
    if of_type.get("num_nodes") is not None:
        return int(of_type["num_nodes"])
    for name, array in of_type.items():
        if name in (*FEATURES, *LABELS) or name.endswith("_mask"):
            return len(array)
    raise FormatError(f"{what}: nothing says how many there are; expected num_nodes, features, labels or a mask")


def _warn(features: Mapping[str, Any], counts: Mapping[str, int], reporter: Reporter) -> None:
    """Warn of columns and rows of zeros."""
    widths = {kind: (*table.shape[1:], 1)[0] for kind, table in features.items()}
    if len(set(widths.values())) > 1:
        reporter.warn(
            f"features have {', '.join(f'{width} columns for {kind}' for kind, width in widths.items())}: rows are "
            f"filled with zeros to {max(widths.values())}. rgcn and rgat have weights for each type of nodes; other "
            "models take a column for the same in all types"
        )
    if without := [f"{kind} ({counts[kind]:,} nodes)" for kind in counts if kind not in widths]:
        reporter.warn(
            f"no features for {', '.join(without)}: they get rows of zeros, from which a model that projects "
            "each node type with a bias learns one vector per type"
        )


class _Types:
    """The types of nodes of a graph. counts: {type: its nodes}."""

    def __init__(self, what: str, counts: Mapping[str, int], scratch: Scratch | None) -> None:
        self.what, self.counts, self.scratch = what, counts, scratch
        self.starts = dict(zip(counts, np.cumsum([0, *counts.values()])[:-1].tolist(), strict=True))

    def of_nodes(
        self, name: str, found: Mapping[str, Any], dtype: DTypeLike | None = None, none: float = 0
    ) -> np.ndarray:
        """The rows of all types, as wide as the widest; `none` elsewhere. dtype: None for one that holds them."""
        tables = {kind: as_array(table, f"the {name} of {kind}") for kind, table in found.items()}
        axes = {table.ndim for table in tables.values()}
        for kind, table in tables.items():
            if len(axes) > 1 or table.ndim not in (1, 2) or len(table) != self.counts[kind]:
                raise FormatError(
                    f"{self.what}: {name} of {kind} has {len(table)} rows, expected {self.counts[kind]}, of shape "
                    f"{list(table.shape)}"
                )

        def fill(into: np.ndarray) -> None:
            if none:
                into[:] = none
            for kind, table in tables.items():
                for first, slab in numbered(table):
                    place = self.starts[kind] + first
                    into[(slice(place, place + len(slab)), *map(slice, slab.shape[1:]))] = slab

        dtype = np.result_type(*tables.values()) if dtype is None else dtype
        columns = max(table.shape[1:] for table in tables.values())
        return filled(self.scratch, f"source/{name}", (sum(self.counts.values()), *columns), dtype, fill)

    def whole(self, ids: np.ndarray, kind: str, what: str, first: int | None = None) -> np.ndarray:
        """Ids within a type as ids of the whole graph, int64; one outside its type would be a node of another type.

        what: a name for the ids. first: the number of the first one if they are ends of edges.
        """
        wrong = (ids < 0) | (ids >= self.counts[kind])
        if wrong.any():
            place = int(np.argmax(wrong))
            what = what if first is None else f"edge {first + place} of {what}"
            raise FormatError(f"{self.what}: {what} names {kind} {ids[place]}, outside 0..{self.counts[kind] - 1}")
        return ids.astype(np.int64) + self.starts[kind]

    def _ends(self, relation: Relation, of_edges: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        """The sources and destinations of a relation, as they are."""
        name, ends = SEPARATOR.join(relation), of_edges.get("edge_index")
        if ends is None:
            raise FormatError(f"{self.what}: {name} has no edge_index; it has {', '.join(of_edges) or 'nothing'}")
        if not isinstance(ends, tuple):
            ends = as_array(ends, f"the edge_index of {name}")
            if ends.ndim != 2 or ends.shape[0] != 2 or ends.dtype.kind not in "iu":
                raise FormatError(f"{self.what}: {name} must have integers (2, E), got {ends.dtype}{list(ends.shape)}")
            ends = (ends[0], ends[1])
        if unknown := set(relation[::2]) - set(self.counts):
            raise FormatError(
                f"{self.what}: {name} names the node type {min(unknown)!r}; there are {', '.join(self.counts)}"
            )
        return ends

    def edges(self, edges: Mapping[Relation, Mapping[str, Any]]) -> dict[str, np.ndarray]:
        """edge_index int64 (2, E) in ids of the whole graph, and edge_type int32 (E,), the number of the relation."""
        pairs = {relation: self._ends(relation, of_edges) for relation, of_edges in edges.items()}
        stops = np.cumsum([0, *(len(pair[0]) for pair in pairs.values())], dtype=np.int64).tolist()

        def fill_ends(into: np.ndarray) -> None:
            for (relation, pair), begin in zip(pairs.items(), stops[:-1], strict=True):
                for ends, kind, row in zip(pair, relation[::2], into, strict=True):
                    place = 0
                    for block in blocks(ends):
                        ids = self.whole(block, kind, SEPARATOR.join(relation), place)
                        row[begin + place : begin + place + len(block)] = ids
                        place += len(block)

        def fill_types(into: np.ndarray) -> None:
            for number, (start, stop) in enumerate(itertools.pairwise(stops)):
                into[start:stop] = number

        return {
            "edge_index": filled(self.scratch, "source/edge_index", (2, stops[-1]), np.int64, fill_ends),
            "edge_type": filled(self.scratch, "source/edge_type", (stops[-1],), np.int32, fill_types),
        }


def _of_relations(what: str, name: str, parts: list[Any]) -> Any:
    """Arrays that all relations have, one after another; of arrays that the graph file cannot have, the first."""
    if any(part is None for part in parts):
        raise FormatError(f"{what}: some relations have {name} and others not; give it to all, or to none")
    tables = [as_array(part, name) for part in parts]
    if len({table.shape[1:] for table in tables}) > 1:
        raise FormatError(
            f"{what}: {name} has {', '.join(str(list(table.shape[1:])) for table in tables)} columns in its relations; "
            "expected one width, since a graph file has features of edges of one width"
        )
    return np.concatenate(tables)
