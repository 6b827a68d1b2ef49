"""`verify` for held-out edges: their nodes, and the numbers of those that distort metrics."""

from collections.abc import Callable, Collection

import numpy as np

from hpcgnn.graphfile.given_links import HELD, NEGATIVES, TARGETS, faults, name_of
from hpcgnn.graphfile.storage import GraphFile
from partition_tools.canonical.links import link_counts
from partition_tools.canonical.rows import numbered
from partition_tools.graph.loading import StoredRows, load_edges, load_links

#: Record a test, which gives '' or what is wrong, unless what it builds on is bad: (name, what that is, test).
Check = Callable[[str, Collection[str], Callable[[], str]], None]


def check_links(file: GraphFile, check: Check, remark: Callable[[str, str], None]) -> None:
    """Check the held-out edges of a graph file, if it has any. remark: records what is no fault of the file."""
    needs = ["topology/indptr", "topology/indices", "row pointers", "index range", "sorted rows"]
    needs += ["nodes/original_id", "original_id is a permutation"]
    for split in HELD:
        names = [name_of(split), name_of(split, NEGATIVES), name_of(split, TARGETS)]
        there, inside = [name for name in names if name in file], f"held-out nodes of {split}"
        if names[0] in there:
            check(inside, there, lambda: next((fault for name in there if (fault := _range(file, name))), ""))
            needs += [*there, inside]
    if file.meta.negatives:
        check("numbers of held-out pairs", needs, lambda: _counts(file, remark))


def _range(file: GraphFile, name: str) -> str:
    nodes = file.meta.num_nodes
    for start, slab in numbered(StoredRows(file, name)):
        wrong = ((slab < 0) | (slab >= nodes)).any(axis=1)
        if wrong.any():
            return f"row {start + int(np.argmax(wrong))} of {name} has a node outside 0..{nodes - 1}"
    return ""


def _counts(file: GraphFile, remark: Callable[[str, str], None]) -> str:
    links = load_links(file)
    found = link_counts(links, load_edges(file), np.argsort(file.read("nodes/original_id")))
    for split, given in links.items():
        for name, stated in given.counts.items():
            if stated != found[split][name]:
                return f"{name} of {split}: stated {stated}, found {found[split][name]}"
        for text in faults(split, given.edges.shape[0], given.num_negatives, found[split]):
            remark(f"held-out edges of {split}", text)
    return ""
