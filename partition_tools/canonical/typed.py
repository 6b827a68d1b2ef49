"""Types of nodes and edges on their way into the file, and the reverse relations that a typed graph may need.

A relational network has weights for each type, so the number of types decides the number of its parameters. A column
of years or identifiers must be an error here, not a model of a million matrices.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from hpcgnn.errors import GraphError
from hpcgnn.graphfile.schema import Edges, GraphData
from partition_tools.canonical.rows import slabs
from partition_tools.graph.edges import BLOCK
from partition_tools.graph.raw import DataError

MAX_TYPES = 1 << 16
#: Words of Gephi's column Type.
DIRECTIONS = {"directed", "undirected", "mutual"}
REVERSED = "{} reversed"


def numbered_types(types: Any, what: str, names: Sequence[str]) -> tuple[Any, Sequence[str]]:
    """(types, their names): types that are words as int64, numbered in the sorted order of the words, their names.

    Raises GraphError for words beside names, for an edge or a node without a word, and for directions of edges.
    """
    if types is None or types.dtype.kind not in "OUS":
        return types, names
    if names:
        raise GraphError(f"the {what} types are words, and there are names of {what} types as well; leave them out")
    seen: dict[str, int] = {}
    numbers = np.empty(types.size, np.int64)
    for place, word in enumerate(types.reshape(-1).tolist()):
        text = word.decode(errors="replace") if isinstance(word, bytes) else str(word)
        if word != word or word is None or not text.strip():
            raise GraphError(f"{what} {place} has no type; give one to each")
        numbers[place] = seen.setdefault(text.strip(), len(seen))
    words = sorted(seen)
    if what == "edge" and {word.lower() for word in words} <= DIRECTIONS:
        raise GraphError(
            f"the edge types are {', '.join(words)}, as Gephi writes the direction of edges; expected types: leave the "
            "column out (`_` in --edge-columns ignores it), and give --undirected for edges that go both ways"
        )
    if len(words) > MAX_TYPES:
        raise GraphError(f"there are {len(words):,} {what} types, expected at most {MAX_TYPES:,}; is this the column?")
    order = np.empty(len(words), np.int64)
    order[[seen[word] for word in words]] = np.arange(len(words))
    return order[numbers].reshape(types.shape), words


def canonical_types(
    types: np.ndarray | None, count: int, what: str, names: Sequence[str] = (), before: int = 0
) -> np.ndarray | None:
    """Types as int32 (count,), counted from 0, or None where there are none.

    what: "edge" or "node", for messages. names: names of the types in order, or empty. before: the number of earlier
    types. Raises GraphError naming the first type that is not a whole number from 0, has no name, or is beyond
    MAX_TYPES.
    """
    if types is None:
        if names:
            raise GraphError(f"there are names of {what} types but no {what} types")
        return None
    types = np.asarray(types)
    if types.ndim == 2 and types.shape[1] == 1:
        types = types[:, 0]
    if types.shape != (count,):
        raise GraphError(f"there are {count} {what}s but {what} types of shape {types.shape}; expected one of each")
    if types.dtype.kind == "f":
        if np.isnan(types).any():
            raise DataError(
                before + int(np.argmax(np.isnan(types))), "has no type; give one to each", f"{what} types", item=what
            )
        types = types.astype(np.int64) if np.array_equal(types, np.rint(types)) else types
    if types.dtype.kind not in "iu":
        raise GraphError(f"{what} types must be whole numbers from 0, got {types.dtype}")
    limit = len(names) or MAX_TYPES
    wrong = (types < 0) | (types >= limit)
    if wrong.any():
        hint = (
            f"there are {limit} names of types" if names else f"at most {MAX_TYPES:,} types; is this the right column?"
        )
        first = int(np.argmax(wrong))
        text = f"has type {types[first]}; {what} types are from 0 to {limit - 1} ({hint})"
        raise DataError(before + first, text, f"{what} types", item=what)
    return types.astype(np.int32)


def canonical_names(names: Mapping[str, Iterable[object]]) -> dict[str, list[str]]:
    """{"nodes": [...], "edges": [...], "classes": [...]} without the empty ones; GraphError for a name that is there
    twice or is empty."""
    checked = {}
    for what, given in names.items():
        texts = [str(name) for name in given]
        wrong = [name for name, times in Counter(texts).items() if times > 1 or not name]
        if wrong:
            raise GraphError(
                f"the names of the {what if what == 'classes' else f'types of {what}'} must be distinct and not "
                f"empty, got {wrong[0]!r}"
            )
        if texts:
            checked[what] = texts
    return checked


def with_reverse(
    src: np.ndarray, dst: np.ndarray, weight: np.ndarray | None, types: np.ndarray | None, num_types: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray]:
    """(src, dst, weight, types) with each edge's reverse next to it, as type `num_types` + its type.

    Messages then flow both ways and a network can weigh the two ways differently. Self loops get a reverse as well.
    """
    assert types is not None, "reverses have types of their own"
    return (
        np.concatenate([src, dst]),
        np.concatenate([dst, src]),
        None if weight is None else np.concatenate([weight, weight]),
        np.concatenate([types, types + np.int32(num_types)]),
    )


def type_warnings(data: GraphData) -> list[str]:
    """Warn of valid types that are probably a mistake: types without members, and node types without in-edges."""
    found = []
    if parallel := _parallel_of_other_types(data.edges):
        found.append(
            f"{parallel:,} of {len(data.edges.indices):,} edges are parallel to one of another type: models without "
            "edge types count each"
        )
    for what, types, count in (
        ("edge", data.edges.type, data.num_edge_types),
        ("node", data.node_type, data.num_node_types),
    ):
        if types is not None and len(types):
            members = sum(np.bincount(part, minlength=count) for part in slabs(types))
            empty = np.flatnonzero(members == 0)
            if len(empty):
                found.append(f"no {what} has {_named(empty, data, what)}, for which a model has weights all the same")
    if data.node_type is not None and len(data.edges.indices):
        present = np.bincount(data.node_type, minlength=data.num_node_types) > 0
        reached = np.bincount(data.node_type[np.diff(data.edges.indptr) > 0], minlength=data.num_node_types) > 0
        alone = np.flatnonzero(present & ~reached)
        if len(alone):
            found.append(
                f"no edge leads to nodes of {_named(alone, data, 'node')}, which learn nothing from others; "
                "--add-reverse gives each edge type its reverse"
            )
    return found


def _parallel_of_other_types(edges: Edges) -> int:
    """How many edges are parallel to the one before them and of another type."""
    count = 0
    if edges.type is None:
        return 0
    for start in range(0, len(edges.indices), BLOCK):
        stop = min(start + BLOCK + 1, len(edges.indices))
        source, kind = edges.indices[start:stop], edges.type[start:stop]
        found = (source[1:] == source[:-1]) & (kind[1:] != kind[:-1])
        firsts = edges.indptr[slice(*np.searchsorted(edges.indptr, [start + 1, stop]))]
        found[firsts - start - 1] = False
        count += int(np.count_nonzero(found))
    return count


def _named(types: np.ndarray, data: GraphData, what: str) -> str:
    names = data.type_names.get(f"{what}s")
    shown = ", ".join(names[number] if names else str(number) for number in types[:5])
    return f"type{'s' if len(types) > 1 else ''} {shown}{', ...' if len(types) > 5 else ''}"
