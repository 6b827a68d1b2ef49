"""`verify` for held-out edges: their nodes, and the number of them that are edges of the graph as well."""

from collections.abc import Callable, Collection

import numpy as np

from hpcgnn.graphfile.given_links import AMONG, HELD, NEGATIVES, TARGETS, name_of
from hpcgnn.graphfile.storage import GraphFile
from partition_tools.canonical.links import among_text, count_among
from partition_tools.canonical.rows import numbered
from partition_tools.graph.loading import StoredRows, load_edges

#: Record a test, which gives '' or what is wrong, unless what it builds on is bad: (name, what that is, test).
Check = Callable[[str, Collection[str], Callable[[], str]], None]


def check_links(file: GraphFile, check: Check) -> None:
    """Check the held-out edges of a graph file, if it has any."""
    for split in HELD:
        names = [name_of(split), name_of(split, NEGATIVES), name_of(split, TARGETS)]
        there, inside = [name for name in names if name in file], f"held-out nodes of {split}"
        if names[0] not in there:
            continue
        check(inside, there, lambda: next((fault for name in there if (fault := _range(file, name))), ""))
        edges = ("topology/indptr", "topology/indices", "row pointers", "index range", "sorted rows")
        needs = (*there, *edges, inside, "nodes/original_id", "original_id is a permutation")
        check(f"held-out pairs of {split} among the edges", needs, lambda: _among(file, split))


def _range(file: GraphFile, name: str) -> str:
    nodes = file.meta.num_nodes
    for start, slab in numbered(StoredRows(file, name)):
        wrong = ((slab < 0) | (slab >= nodes)).any(axis=1)
        if wrong.any():
            return f"row {start + int(np.argmax(wrong))} of {name} has a node outside 0..{nodes - 1}"
    return ""


def _among(file: GraphFile, split: str) -> str:
    name = name_of(split)
    stated, count = file.attributes(name).get(AMONG), file.shape(name)[0]
    place = np.argsort(file.read("nodes/original_id"))
    found = count_among(load_edges(file), StoredRows(file, name), place)
    return "" if stated == found else f"stated {stated}, found: {among_text(split, found, count)}"
