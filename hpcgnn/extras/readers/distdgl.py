"""Folders of partitions of DGL, as DistDGL, GraphStorm and SAR's examples read them: NAME.json and part0/, part1/, …

Nodes are numbered as DGL numbers them after its partitioning, type by type. A part also holds copies of other parts'
nodes and edges. Each node and each edge is taken from the part that owns it. The assignment of nodes to parts is
`RawGraph.parts`. Ids from before the partitioning are read where the folder has them (`partition_ids`).
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hpcgnn.errors import FormatError
from hpcgnn.extras.readers.dgl_binary import StoredGraph, read_graph, read_tensors
from hpcgnn.extras.readers.graphbolt import read_sampling_graph
from hpcgnn.extras.readers.graphstorm import meanings
from hpcgnn.extras.readers.partition_ids import ids_before
from hpcgnn.extras.readers.renamed import FEATURES, LABELS, NODE_DATA, joined_columns, of_dgl, refuse_unknown
from partition_tools.graph.raw import RawGraph
from partition_tools.readers.arrays.joined_types import joined
from partition_tools.readers.arrays.named_arrays import ArrayOptions, graph_of, in_memory
from partition_tools.workspace.scratch import Scratch
from partition_tools.workspace.settings import key

NAME = "distdgl"
#: Where a part names its graph: that of DGL, and that of GraphBolt in two versions.
_GRAPHS = ("part_graph", "part_graph_graphbolt", "gb_part_graph")
_KEYS = ("num_parts", "node_map", "edge_map", "part-0")
#: The types of a graph that has one of each.
_ONE_TYPE, _ONE_RELATION = "_N", ("_N", "_E", "_N")
#: Edge data with the number of the relation, which OGB's graphs have and a relation says by itself.
_NUMBER = "reltype"


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    """The names OLD=NEW between commas. Raises ValueError."""
    pairs = [tuple(part.strip() for part in pair.split("=")) for pair in text.split(",")]
    if not all(len(pair) == 2 and all(pair) for pair in pairs):
        raise ValueError(f"expected OLD=NEW, such as venue=label, got {text}")
    return tuple((old, new) for old, new in pairs)


@dataclass(frozen=True)
class Options(ArrayOptions):
    """Options of reading partitions of DGL."""

    rename: tuple[tuple[str, str], ...] = key(
        "arrays.rename", (), "names of node data, OLD=NEW between commas, such as venue=label,emb=feat", _pairs
    )


OPTIONS = Options


def matches(path: Path) -> bool:
    """Whether a path looks like this format."""
    return _book(path) is not None


def read(path: Path, options: Options, scratch: Scratch) -> RawGraph:
    """The `RawGraph` of all parts. Raises FormatError."""
    book_path = _book(path)
    if book_path is None:
        raise FormatError(f"{path} has no .json with {', '.join(_KEYS)}; expected a folder of DGL's partition_graph")
    book = json.loads(book_path.read_text(encoding="utf-8"))
    count, folder = int(book["num_parts"]), book_path.parent
    starts, edge_ranges = (
        {kind: _ranges(book_path, kind, found, count) for kind, found in _by_type(book[name], only).items()}
        for name, only in (("node_map", _ONE_TYPE), ("edge_map", ":".join(_ONE_RELATION)))
    )
    parts = [_Part(folder, book, number, starts) for number in range(count)]
    nodes = {kind: _joined_rows([each.node_rows(kind) for each in parts], kind) for kind in starts}
    named = dict(options.rename)
    refuse_unknown(book_path, named, list(dict.fromkeys(name for of_type in nodes.values() for name in of_type)))
    told = meanings(folder, scratch.reporter)
    for kind, rows in nodes.items():
        free = {old: new for old, new in told.get(kind, {}).items() if new not in named.values()}
        found = joined_columns(rows, free | named)
        found = {name: one.astype(bool) if name.endswith("_mask") else one for name, one in found.items()}
        nodes[kind] = _once(found, options.ignore)
    for kind, ranges in starts.items():
        nodes[kind]["num_nodes"] = int(np.diff(ranges).sum())
    edges = {}
    for kind, ranges in edge_ranges.items():
        relation = _relation(book_path, kind)
        pairs = [each.edges(ranges[each.number], relation) for each in parts]
        rows = _joined_rows([each.edge_rows(kind) for each in parts], kind)
        if len(edge_ranges) > 1 and len(np.unique(rows.get(_NUMBER, ()))) == 1:
            del rows[_NUMBER]
        edges[relation] = {"edge_index": np.concatenate(pairs, 1), **of_dgl(rows, True)}
    counts = {kind: of_type["num_nodes"] for kind, of_type in nodes.items()}
    ids = ids_before(folder, [each.folder for each in parts], counts, scratch.reporter)
    if list(starts) == [_ONE_TYPE] and list(edges) == [_ONE_RELATION]:
        arrays: dict[str, Any] = {**nodes[_ONE_TYPE], **edges[_ONE_RELATION]}
    else:
        for of_type in nodes.values():
            of_type.pop("n_id", None)  # ids within the types, which are not distinct
        arrays = joined(str(book_path), nodes, edges, scratch.reporter, scratch)
    if ids is not None:
        arrays["n_id"] = ids
    raw = graph_of(str(book_path), in_memory(arrays), options, scratch.reporter)
    raw.parts = np.concatenate([np.repeat(np.arange(count), np.diff(ranges)[:, 0]) for ranges in starts.values()])
    raw.source = str(book.get("graph_name", book_path.stem))
    return raw


def _book(path: Path) -> Path | None:
    """The .json that describes the partitions, of a folder or itself; None if there is none."""
    for each in sorted(path.glob("*.json")) if path.is_dir() else [path] if path.suffix == ".json" else []:
        try:
            found = json.loads(each.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(found, dict) and all(key in found for key in _KEYS):
            return each
    return None


def _by_type(found: Any, only: str) -> Mapping[str, Any]:
    """A map by types. Old versions of DGL leave the type out where there is one."""
    return found if isinstance(found, dict) else {only: found}


def _ranges(book: Path, kind: str, found: Any, count: int) -> np.ndarray:
    """int64 (parts, 2): the numbers of a type's nodes or edges in each part."""
    if isinstance(found, str):
        raise FormatError(
            f"{book}: the map of {kind} is the file {found}, of a version of DGL that did not renumber nodes; "
            "partition the graph again with DGL 1.0 or later"
        )
    ranges = np.asarray(found)
    if ranges.shape == (count,):  # old versions have the ends alone
        ranges = np.stack([np.concatenate([[0], ranges[:-1]]), ranges], 1)
    if ranges.shape != (count, 2) or ranges.dtype.kind != "i" or (np.diff(ranges) < 0).any():
        raise FormatError(f"{book}: expected a pair of numbers for each of {count} parts of {kind}, got {found}")
    return ranges


def _relation(book: Path, kind: str) -> tuple[str, str, str]:
    words = kind.split(":")
    if len(words) == 1 and kind == "_E":
        return _ONE_RELATION
    if len(words) != 3:
        raise FormatError(
            f"{book}: edge type {kind} does not name its ends, as source:relation:destination; convert the folder with "
            "DGL's change_etype_to_canonical_etype"
        )
    return words[0], words[1], words[2]


def _joined_rows(parts: list[Mapping[str, np.ndarray]], kind: str) -> dict[str, Any]:
    """{name: rows of all parts}. Raises FormatError."""
    names = list(parts[0])
    if other := next((number for number, each in enumerate(parts) if set(each) != set(names)), None):
        raise FormatError(f"part {other} has {sorted(parts[other])} of {kind}, and part 0 has {sorted(names)}")
    joined_rows = {}
    for name in names:
        rows = [each[name] for each in parts]
        if len({one.ndim for one in rows}) > 1:  # DGL writes one column of one node as a single number
            rows = [one.reshape(len(one), -1) for one in rows]
        if other := next((number for number, one in enumerate(rows) if one.shape[1:] != rows[0].shape[1:]), None):
            got, expected = (list(rows[number].shape[1:]) for number in (other, 0))
            raise FormatError(f"part {other}: rows of {kind}/{name} have shape {got}, and those of part 0 {expected}")
        joined_rows[name] = np.concatenate(rows)
    return joined_rows


def _once(rows: Mapping[str, Any], ignored: Collection[str]) -> dict[str, Any]:
    """Rows without those that another name has as well: SAR's examples keep `feat` beside `features`."""
    kept: dict[str, Any] = {}
    for name, found in rows.items():
        names = next((names for names in (FEATURES, LABELS) if name in names and name not in ignored), ())
        if not any(np.array_equal(kept[other], found) for other in names if other in kept and other not in ignored):
            kept[name] = found
    usual = {name: NODE_DATA.get(name, name) for name in kept if name not in ignored}
    return {name if usual.get(name, name) in kept else usual[name]: found for name, found in kept.items()}


class _Part:
    """One part: what it owns. starts: {type: (parts, 2)}, the numbers of nodes."""

    def __init__(self, folder: Path, book: Mapping[str, Any], number: int, starts: Mapping[str, np.ndarray]) -> None:
        self.number, self._starts = number, starts
        files = book.get(f"part-{number}", {})
        name = next((name for name in _GRAPHS if name in files and (folder / files[name]).exists()), None)
        name = name or next((name for name in _GRAPHS if name in files), None)
        if name is None:
            raise FormatError(f"{folder}: part {number} has no part_graph, such as part{number}/graph.dgl")
        reader = read_graph if name == _GRAPHS[0] else read_sampling_graph
        self.folder = (folder / files[name]).parent
        self._graph: StoredGraph = reader(folder / files[name])
        self._node_data, self._edge_data = (
            read_tensors(folder / files[name]) if name in files else {} for name in ("node_feats", "edge_feats")
        )
        self._ids = self._graph.nodes["_ID"].astype(np.int64)
        self._types: Mapping[str, int] = book.get("etypes", {})

    def node_rows(self, kind: str) -> dict[str, np.ndarray]:
        """{name: rows} of this type's own nodes, in the order of their numbers."""
        first, last = self._starts[kind][self.number]
        rows = self._rows_of(self._node_data, kind, last - first)
        original = self._graph.nodes.get("orig_id")
        if original is not None:
            own = np.flatnonzero((self._ids >= first) & (self._ids < last))
            rows["n_id"] = original[own[np.argsort(self._ids[own])]]
        return rows

    def edge_rows(self, kind: str) -> dict[str, np.ndarray]:
        """{name: rows} of this relation's own edges."""
        return self._rows_of(self._edge_data, kind, None)

    def _rows_of(self, data: Mapping[str, np.ndarray], kind: str, count: int | None) -> dict[str, np.ndarray]:
        # Old versions of DGL do not name the type where there is one.
        rows = {name.rpartition("/")[2]: rows for name, rows in data.items() if name.rpartition("/")[0] in ("", kind)}
        for name, found in rows.items():
            if count is not None and len(found) != count:
                raise FormatError(f"part {self.number}: {kind}/{name} has {len(found)} rows, expected {count}")
        return rows

    def edges(self, numbers: np.ndarray, relation: tuple[str, str, str]) -> np.ndarray:
        """int64 (2, E): a relation's own edges in the order of their numbers, between nodes numbered within types."""
        own = self._own_edges(numbers, ":".join(relation))
        if len(own) != numbers[1] - numbers[0]:
            raise FormatError(
                f"part {self.number}: expected the edges {numbers[0]} to {numbers[1]} of {':'.join(relation)}, "
                f"got {len(own)}"
            )
        ends = (self._ids[self._graph.src[own]], self._ids[self._graph.dst[own]])
        return np.stack([self._within(each, kind) for each, kind in zip(ends, relation[::2], strict=True)])

    def _own_edges(self, numbers: np.ndarray, kind: str) -> np.ndarray:
        """The places of a relation's own edges, in the order of their numbers where these are stored."""
        data = self._graph.edges
        if "_ID" in data:
            found = data["_ID"]
            own = np.flatnonzero((found >= numbers[0]) & (found < numbers[1]))
            if "inner_edge" in data:
                own = own[data["inner_edge"][own].astype(bool)]
            own = own[np.argsort(found[own])]
            return own if len(np.unique(found[own])) == len(own) else own[:0]
        if rows := self.edge_rows(kind):
            raise FormatError(
                f"part {self.number} has {', '.join(rows)} of edges and no edge ids, so nothing says whose they are; "
                "convert the folder again with dgl.distributed.dgl_partition_to_graphbolt(…, store_eids=True)"
            )
        owners = np.zeros(len(self._ids), bool)  # an edge is its destination's part's
        for ranges in self._starts.values():
            owners |= (self._ids >= ranges[self.number, 0]) & (self._ids < ranges[self.number, 1])
        own = owners[self._graph.dst]
        return np.flatnonzero(own & (data["type"] == self._types.get(kind, -1)) if "type" in data else own)

    def _within(self, numbers: np.ndarray, kind: str) -> np.ndarray:
        """The numbers of nodes within their type."""
        ranges = self._starts[kind]
        part = np.searchsorted(ranges[:, 1], numbers, side="right")
        if (part >= len(ranges)).any() or (numbers < ranges[np.minimum(part, len(ranges) - 1), 0]).any():
            raise FormatError(f"part {self.number}: an edge ends at a node that is not of type {kind}")
        before = np.concatenate([[0], np.cumsum(np.diff(ranges)[:, 0])])
        return numbers - ranges[part, 0] + before[part]
