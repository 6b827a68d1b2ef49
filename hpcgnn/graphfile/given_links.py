"""Held-out edges that come with a graph, and their negative pairs, by original node ids.

Like the users' ids they do not depend on the order of the nodes, so reordering a graph leaves them as they are. A
reader without support for them sees only the graph's own edges, which are for training.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hpcgnn.errors import FormatError
from hpcgnn.graphfile.schema import KINDS_OF_NEGATIVES, GivenLinks, RowReader

if TYPE_CHECKING:
    from hpcgnn.graphfile.storage import GraphFile

#: The splits with held-out edges, in this order.
HELD = ("val", "test")
#: What a file may have of each: pairs; pairs that all of them are compared with; nodes in place of the target of each.
EDGES, NEGATIVES, TARGETS = "edges", "negatives", "negative_targets"
#: The kinds of negatives: none in the file, pairs that all edges share, or nodes for each edge.
NONE, SHARED, EACH = KINDS_OF_NEGATIVES
_AWAY = "messages along them give these pairs away"
#: The attributes of a split's edges that count pairs which distort its metrics: {name: (what is counted, its fault)}.
#: But in the first two, a pair and its reverse are the same: every scorer is symmetric.
COUNTS = {
    "among_edges": ("held-out pairs", f"are edges of the graph as well: {_AWAY}"),
    "reverses_among_edges": ("held-out pairs", f"are edges of the graph in the other direction: {_AWAY}"),
    "in_both_splits": ("held-out pairs", "are in the other split as well"),
    "repeated": ("held-out pairs", "repeat another one: each is judged again"),
    "self_pairs": ("held-out pairs", "join a node with itself"),
    "negatives_among_edges": ("negatives", "are edges of the graph: they are no negatives"),
    "negatives_held_out": ("negatives", "are held-out pairs: they are no negatives"),
}


def name_of(split: str, part: str = EDGES) -> str:
    """The dataset of a part."""
    return f"links/{split}/{part}"


def stored_links(links: Mapping[str, GivenLinks]) -> Iterator[tuple[str, RowReader, dict[str, int]]]:
    """(dataset, array, its attributes) of all that is given."""
    for split, given in links.items():
        for part in (EDGES, NEGATIVES, TARGETS):
            array = getattr(given, part)
            if array is not None:
                yield name_of(split, part), array, dict(given.counts) if part == EDGES else {}


def given_shapes(file: "GraphFile") -> dict[str, tuple[int, ...]]:
    """{dataset: shape} of all that a file has of held-out edges, with the lengths that it is free to have. Raises
    FormatError for negatives of nothing, or of two kinds.
    """
    kind, shapes = file.meta.negatives, dict[str, tuple[int, ...]]()
    for split in HELD:
        there = [part for part in (EDGES, NEGATIVES, TARGETS) if name_of(split, part) in file]
        wanted = {NONE: [EDGES], SHARED: [EDGES, NEGATIVES], EACH: [EDGES, TARGETS]}.get(kind, [])
        if not there:
            continue
        if there != wanted:
            raise FormatError(
                f"{file.path}: links/{split} has {', '.join(there)}, expected {', '.join(wanted) or 'nothing'}; "
                "import the graph again"
            )
        count = file.shape(name_of(split))[0]
        shapes[name_of(split)] = count, 2
        for part in there[1:]:
            found = (*file.shape(name_of(split, part)), 0)
            shapes[name_of(split, part)] = (found[0], 2) if part == NEGATIVES else (count, found[1])
    if kind and not shapes:
        raise FormatError(f"{file.path} has no held-out edges, and its attributes say that it has; import it again")
    return shapes


def stored_counts(file: "GraphFile", split: str) -> dict[str, int]:
    """{name of `COUNTS`: number} of a split; older files have some of them."""
    attributes = file.attributes(name_of(split))
    return {name: int(attributes[name]) for name in COUNTS if name in attributes}


def faults(split: str, pairs: int, negatives: int, counts: Mapping[str, int]) -> list[str]:
    """What distorts the metrics of a split. pairs, negatives: how many there are in all."""
    of = {"held-out pairs": pairs, "negatives": negatives}
    return [
        f"{counts[name]:,} of {of[what]:,} {what} of {split} {fault}"
        for name, (what, fault) in COUNTS.items()
        if counts.get(name)
    ]


def summary(file: "GraphFile") -> dict[str, dict[str, Any]]:
    """Return {split: {'pairs', 'negatives' (of all pairs, or of each), 'of': which, the `COUNTS`, 'faults'}} of the
    held-out edges.
    """
    kind, found = file.meta.negatives, {}
    part = {SHARED: NEGATIVES, EACH: TARGETS}.get(kind)
    for split in HELD if kind else ():
        if name_of(split) in file:
            pairs, counts = file.shape(name_of(split))[0], stored_counts(file, split)
            count = 0 if part is None else file.shape(name_of(split, part))[0 if kind == SHARED else 1]
            negatives = count * pairs if kind == EACH else count
            found[split] = {
                "pairs": pairs,
                "negatives": count,
                "of": kind,
                **counts,
                "faults": faults(split, pairs, negatives, counts),
            }
    return found
