"""Graphs that come type by type, PyG's HeteroData and DGL's graphs of several types, as the named arrays of one graph.

Types of nodes follow one another, and relations are numbered, both in their order in the source. Features of a type are
the first columns of its rows. If types have different widths, the rest of a row is zeros. So the projection by type of
a relational model (nn/rgcn.py) has weights for the columns of each type alone. A type without features has rows of
zeros, from which the bias of its projection makes one learned vector.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.readers.arrays.in_memory import as_array
from partition_tools.readers.arrays.named_arrays import EDGE_FEATURES, FEATURES, LABELS
from partition_tools.readers.arrays.npz_names import split_of
from partition_tools.workspace.progress import Reporter

SEPARATOR = "___"
Relation = tuple[str, str, str]
_OF_ALL_RELATIONS = ("edge_weight", *EDGE_FEATURES)


def joined(
    what: str,
    nodes: Mapping[str, Mapping[str, Any]],
    edges: Mapping[Relation, Mapping[str, Any]],
    reporter: Reporter,
) -> dict[str, Any]:
    """{name: array} of one graph with types, as `named_arrays` reads them. what: its name in errors.

    nodes: {type: {name: array}} of features, labels, masks, num_nodes; edges: {(type, relation, type): {name: array}}
    of edge_index (2, E_r), within the types, weights and features. Other arrays keep their names, and are refused or
    left out there. Raises FormatError.
    """
    counts = {kind: _count(f"{what}, nodes of type {kind}", kind, of_type, edges) for kind, of_type in nodes.items()}
    starts = dict(zip(counts, np.cumsum([0, *counts.values()])[:-1].tolist(), strict=True))
    arrays: dict[str, Any] = {"num_nodes": sum(counts.values())}
    for name in dict.fromkeys(name for of_type in nodes.values() for name in of_type if name != "num_nodes"):
        found = {kind: of_type[name] for kind, of_type in nodes.items() if of_type.get(name) is not None}
        if name in FEATURES:
            arrays[name] = _features(what, found, counts, starts, reporter)
        elif name in LABELS:
            arrays[name] = _labels(what, found, counts, starts)
        elif split_of(name):
            masks = (split_of(name) or ("", ""))[1] == "mask"
            arrays[name] = _members({kind: _of_split(one, name, masks) for kind, one in found.items()}, counts, starts)
        else:
            arrays[name] = next(iter(found.values()))
    pairs = [_ends(what, relation, of_edges, counts, starts) for relation, of_edges in edges.items()]
    arrays["edge_index"] = np.concatenate(pairs, axis=1) if pairs else np.zeros((2, 0), np.int64)
    arrays["edge_type"] = np.repeat(np.arange(len(pairs), dtype=np.int32), [pair.shape[1] for pair in pairs])
    for name in dict.fromkeys(name for of_edges in edges.values() for name in of_edges if name != "edge_index"):
        parts = [of_edges.get(name) for of_edges in edges.values()]
        arrays[name] = _of_relations(what, name, parts) if name in _OF_ALL_RELATIONS else parts[0]
    names = {"node_type_names": list(nodes), "edge_type_names": [SEPARATOR.join(relation) for relation in edges]}
    node_type = np.repeat(np.arange(len(counts), dtype=np.int32), list(counts.values()))
    return arrays | {"node_type": node_type} | {name: np.array(words) for name, words in names.items()}


def _count(what: str, kind: str, of_type: Mapping[str, Any], edges: Mapping[Relation, Any]) -> int:
    if of_type.get("num_nodes") is not None:
        return int(of_type["num_nodes"])
    for name, array in of_type.items():
        if name in (*FEATURES, *LABELS) or (split_of(name) or ("", ""))[1] == "mask":
            return len(array)
    related = ", ".join(SEPARATOR.join(relation) for relation in edges if kind in relation[::2])
    raise FormatError(
        f"{what}: nothing says how many there are; expected num_nodes, features, labels or a mask "
        f"(the edges {related or 'of no relation'} name only those that have one)"
    )


def _features(
    what: str, found: Mapping[str, Any], counts: Mapping[str, int], starts: Mapping[str, int], reporter: Reporter
) -> np.ndarray:
    tables = {kind: as_array(table, f"the features of {kind}") for kind, table in found.items()}
    for kind, table in tables.items():
        if table.ndim != 2 or len(table) != counts[kind]:
            raise FormatError(f"{what}: the features of {kind} must be ({counts[kind]}, F), got {list(table.shape)}")
    widest = say_widths({kind: table.shape[1] for kind, table in tables.items()}, counts, reporter)
    out = np.zeros((sum(counts.values()), widest), np.result_type(*tables.values()))
    for kind, table in tables.items():
        out[starts[kind] : starts[kind] + counts[kind], : table.shape[1]] = table
    return out


def say_widths(widths: Mapping[str, int], counts: Mapping[str, int], reporter: Reporter) -> int:
    """The columns that features of all types have together, after warnings of columns filled with zeros.

    widths: {type: its columns} of types with features; counts: {type: its nodes} of all.
    """
    widest = max(widths.values(), default=0)
    if len(set(widths.values())) > 1:
        reporter.warn(
            f"features have {', '.join(f'{width} columns for {kind}' for kind, width in widths.items())}: rows are "
            f"filled with zeros to {widest}. rgcn and rgat have weights for each type of nodes; other models take a "
            "column for the same in all types"
        )
    without = [f"{kind} ({counts[kind]:,} nodes)" for kind in counts if kind not in widths]
    if without and widths:
        reporter.warn(
            f"no features for {', '.join(without)}: they get rows of zeros, from which a model that projects "
            "each node type with a bias learns one vector per type"
        )
    return widest


def _labels(what: str, found: Mapping[str, Any], counts: Mapping[str, int], starts: Mapping[str, int]) -> np.ndarray:
    if len(found) > 1:
        raise FormatError(f"{what}: {', '.join(found)} have labels; expected one type of nodes with labels")
    ((kind, values),) = found.items()
    known = as_array(values, f"the labels of {kind}")
    if len(known) != counts[kind]:
        raise FormatError(f"{what}: {kind} has {len(known)} labels, expected {counts[kind]}")
    labels = np.full((sum(counts.values()), *known.shape[1:]), np.nan)
    labels[starts[kind] : starts[kind] + counts[kind]] = known
    return labels


def _of_split(values: Any, name: str, is_mask: bool) -> np.ndarray:
    """The members of a split; a mask of the integers 0 and 1 as booleans."""
    array = as_array(values, name)
    return array.astype(bool) if is_mask and array.dtype.kind in "iu" and np.isin(array, (0, 1)).all() else array


def _members(found: Mapping[str, np.ndarray], counts: Mapping[str, int], starts: Mapping[str, int]) -> np.ndarray:
    """Masks of types as one, or their node numbers in the whole graph."""
    first = next(iter(found.values()))
    if first.dtype != bool:
        return np.concatenate([ids + starts[kind] for kind, ids in found.items()])
    mask = np.zeros((sum(counts.values()), *first.shape[1:]), bool)
    for kind, part in found.items():
        mask[starts[kind] : starts[kind] + counts[kind]] = part
    return mask


def _ends(
    what: str, relation: Relation, of_edges: Mapping[str, Any], counts: Mapping[str, int], starts: Mapping[str, int]
) -> np.ndarray:
    name, kinds = SEPARATOR.join(relation), relation[::2]
    if of_edges.get("edge_index") is None:
        raise FormatError(f"{what}: {name} has no edge_index; it has {', '.join(of_edges) or 'nothing'}")
    ends = as_array(of_edges["edge_index"], f"the edge_index of {name}")
    if ends.ndim != 2 or ends.shape[0] != 2 or ends.dtype.kind not in "iu":
        raise FormatError(f"{what}: {name} must have integers (2, E), got {ends.dtype}{list(ends.shape)}")
    for kind, ids in zip(kinds, ends, strict=True):
        if kind not in counts:
            raise FormatError(f"{what}: {name} names the node type {kind!r}; there are {', '.join(counts)}")
        if len(ids) and (ids.min() < 0 or ids.max() >= counts[kind]):  # one more would be a node of another type
            raise FormatError(f"{what}: {name} names {kind} {ids.min()} to {ids.max()}, outside 0..{counts[kind] - 1}")
    return ends + np.array([[starts[kind]] for kind in kinds])


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
