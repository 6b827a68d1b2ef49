"""The order of a rank's own nodes: first those that have an edge from or to another rank, then the interior.

Interior rows need no other rank. An operator can therefore finish them, some rows at a time, while messages are on
their way (ops/linear_aggregation.py). Boundary rows are together at the front: the rows that are sent, and the sums
that wait for the last message. Both parts keep the order of the file, in which neighbours are near each other.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hpcgnn.errors import GraphError
from hpcgnn.graphfile.ranges import indptr_of, row_blocks, segments
from hpcgnn.graphfile.schema import Edges
from hpcgnn.placement.ownership import Ownership


@dataclass(frozen=True)
class FoundEdges:
    """The edges of one direction of the own rows, with their other ends found.

    indptr: int64 (n_p + 1,). owner: (E_p,), unsigned of as few bytes as ranks need, the rank of the other end;
    local_id: int32 (E_p,), its number there: on this rank in the local order, on others in the order of the file.
    weight: float32 (E_p,) or None; type: int32 (E_p,) or None.
    """

    indptr: np.ndarray
    owner: np.ndarray
    local_id: np.ndarray
    weight: np.ndarray | None = None
    type: np.ndarray | None = None

    def taken(self, chosen: np.ndarray) -> "FoundEdges":
        """The chosen ones: bool (E_p,)."""
        weight, kind = (None if each is None else each[chosen] for each in (self.weight, self.type))
        return FoundEdges(indptr_of(self.indptr, chosen), self.owner[chosen], self.local_id[chosen], weight, kind)

    def blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """(some edges, their rows int32) of all edges, in order. A row is never cut."""
        for first, last in row_blocks(self.indptr):
            rows = np.repeat(np.arange(first, last, dtype=np.int32), np.diff(self.indptr[first : last + 1]))
            yield slice(int(self.indptr[first]), int(self.indptr[last])), rows


@dataclass(frozen=True)
class LocalOrder:
    """number: int64 (n_p,), the place of each own node in the local order, by its place in the order of the file. None:
    the same.
    """

    number: np.ndarray | None = None

    def of(self, nodes: np.ndarray) -> np.ndarray:
        """The places of own nodes given in the order of the file, of the same type."""
        return nodes if self.number is None else self.number[nodes].astype(nodes.dtype)

    def taken(self) -> np.ndarray:
        """int64 (n_p,): the place in the order of the file of each node in the local order. For an order that is not
        the same.
        """
        taken = np.empty_like(self.number)
        taken[self.number] = np.arange(len(taken))
        return taken


def find_ends(edges: Edges, ownership: Ownership) -> FoundEdges:
    """FoundEdges of Edges whose indices are rows of the file, all in the order of the file. Indices of int32 are
    overwritten. Raises GraphError.
    """
    total = int(ownership.cluster_offsets[-1])
    if len(edges.indices) and not 0 <= int(edges.indices.min()) <= int(edges.indices.max()) < total:
        raise GraphError(
            f"an edge ends at node {int(edges.indices.max())}, expected ids in 0..{total - 1}; verify the graph file"
        )
    indices = np.asarray(edges.indices)
    found = ownership.locate(indices, indices if indices.dtype == np.int32 else None)
    return FoundEdges(edges.indptr, *found, edges.weight, edges.type)


def interior_last(directions: list[FoundEdges], rank: int) -> LocalOrder:
    """The LocalOrder for the FoundEdges of all directions, a list, which are then put into it."""
    outer = np.zeros(len(directions[0].indptr) - 1, bool)
    for edges in directions:
        for part, rows in edges.blocks():
            outer[rows[edges.owner[part] != rank]] = True
    if (outer[:-1] >= outer[1:]).all():  # as it is
        return LocalOrder()
    number = np.where(outer, np.cumsum(outer), outer.sum() + np.cumsum(~outer)) - 1
    order = LocalOrder(number)
    for index, edges in enumerate(directions):  # one after another: each is let go when the next is made
        directions[index] = _reordered(edges, order, rank)
    return order


def _reordered(edges: FoundEdges, order: LocalOrder, rank: int) -> FoundEdges:
    """The FoundEdges in the local order: some rows at a time, so that nothing but the result is as long as they are."""
    taken = order.taken()
    indptr = np.zeros_like(edges.indptr)
    np.cumsum(np.diff(edges.indptr)[taken], out=indptr[1:])
    columns = edges.owner, edges.local_id, edges.weight, edges.type
    owner, local_id, weight, kind = moved = [None if each is None else np.empty_like(each) for each in columns]
    assert owner is not None and local_id is not None
    for first, last in row_blocks(indptr):
        part = np.s_[indptr[first] : indptr[last]]
        entries = segments(edges.indptr[taken[first:last]], np.diff(indptr[first : last + 1]))
        for column, new in zip(columns, moved, strict=True):
            if column is not None and new is not None:
                new[part] = column[entries]
        mine = owner[part] == rank
        local_id[part][mine] = order.of(local_id[part][mine])
    return FoundEdges(indptr, owner, local_id, weight, kind)
