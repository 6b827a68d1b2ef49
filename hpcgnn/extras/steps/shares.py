"""The shares of a rank's rows that the steps of an epoch compute one after another (historical.py).

A share has whole clusters of the graph file. Draws for their numbers deal them out, so the shares are the same for
every number of ranks and every map. The columns of its edges are all own nodes and then the whole halo, for its sums
read rows of other shares as well.

share_rows.py chooses the rows that each layer takes and computes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from hpcgnn import kernels
from hpcgnn.comm.communicator import Communicator
from hpcgnn.exchange.plan import gather_halo, parts
from hpcgnn.extras.steps.histories import Crossing, Numbers
from hpcgnn.graph.blocks import Block, sampled, transposed
from hpcgnn.graph.local import Adjacency, LocalGraph
from hpcgnn.graph.transforms.subgraphs import rows_of
from hpcgnn.graphfile.ranges import segments
from hpcgnn.memory.stored_rows import StoredRows

# As in graph/transforms/pruning.py.
_NOT_NEEDED: Any = None


@dataclass(frozen=True)
class Share:
    """A share of a rank's rows, as some layers see it.

    Attributes:
        crossing: the rows that these layers take, and the messages about them.
        computed: int64 (m,), increasing, the own rows that they compute, all of them among the rows that they take.
        local: their LocalGraph. Its in-edges are one halo block, whose columns are own nodes and then the halo.
        near: the transposed block of the edges from rows of the share, on any rank, with a row for each that has any.
    """

    crossing: Crossing
    computed: torch.Tensor
    local: LocalGraph
    near: Block

    @property
    def block(self) -> Block:
        """All edges."""
        return self.local.inward.halo[0]

    @cached_property
    def back(self) -> Block:
        """The transposed block of all edges."""
        return transposed(self.block)

    @property
    def nbytes(self) -> int:
        """Bytes of the share, without the rank's graph."""
        features, back = self.local.features, self.__dict__.get("back")
        copied = features.nbytes if isinstance(features, torch.Tensor) else 0
        transposes = self.near.nbytes + (0 if back is None else back.nbytes)
        numbers = self.crossing.rows.nbytes + self.computed.nbytes
        return self.block.nbytes + transposes + numbers + copied


def deal(
    cluster: torch.Tensor, count: int, key: int, comm: Communicator, counted: torch.Tensor | None = None
) -> tuple[torch.Tensor, int]:
    """(int64 (n_p,): the share of each own node; the number of shares that have nodes). Collective.

    cluster: int32 (n_p,) of own nodes; count: shares with about as many nodes each; key: of the draws; counted: bool
    (n_p,), the nodes that count (None: all).
    """
    most = int(comm.allreduce_(torch.tensor([int(cluster.max()) + 1 if len(cluster) else 0]), "plan", "max"))
    sizes = comm.total(torch.bincount(cluster if counted is None else cluster[counted], minlength=most), "plan")
    order = torch.argsort(kernels.random_words(key, torch.arange(most), 1)[:, 0], stable=True)
    middle = torch.cumsum(sizes[order], 0) - sizes[order] / 2
    share_of = torch.empty(most, dtype=torch.int64)
    share_of[order] = (middle * count / sizes.sum()).long().clamp_(max=count - 1)
    used, numbers = torch.unique(share_of[sizes > 0], return_inverse=True)
    share_of[sizes > 0] = numbers
    return share_of[cluster.long()], len(used)


def split_in_shares(
    local: LocalGraph, taken: list[torch.Tensor], computed: list[torch.Tensor], comm: Communicator, features: bool
) -> list[Share]:
    """The Shares of a rank for some layers. Collective.

    taken, computed: int64, increasing, the own rows of each share that the layers take and compute (share_rows.py);
    features: whether they need their own of these.
    """
    plan, n = local.inward.plan, local.num_owned
    blocks = _blocks(local.inward, computed)
    read = torch.zeros(n + plan.num_halo, dtype=torch.bool)
    for block in blocks:
        read[block.indices.long()] = True
    halo = [(plan.peers.source(k), torch.arange(n + at, n + at + size)) for k, at, size in parts(plan.receive_counts)]
    rows_to = [(plan.peers.dest(k), plan.rows_to(k)) for k, _, _ in parts(plan.send_counts)]
    halo, rows_to = _both(halo, [read[columns] for _, columns in halo], rows_to, comm)
    made = []
    for rows, outputs, block in zip(taken, computed, blocks, strict=True):
        own_fresh = torch.zeros(n, dtype=torch.bool)
        own_fresh[rows] = True
        fresh = torch.cat([own_fresh, gather_halo(plan, own_fresh, comm)])
        near = transposed(sampled(block, fresh, 0, renumber=False))
        sent = _nonempty((rank, to[own_fresh[to.long()]]) for rank, to in rows_to)
        received = _nonempty((rank, columns[fresh[columns]].int()) for rank, columns in halo)
        assert near.rows is not None, "a transposed block says which rows it stores"
        used, asked = _both(received, [torch.isin(columns, near.rows) for _, columns in received], sent, comm)
        returned = [(rank, torch.searchsorted(near.rows, columns).int()) for rank, columns in _nonempty(used)]
        places = [(rank, torch.searchsorted(rows, to.long()).int()) for rank, to in _nonempty(asked)]
        own = torch.searchsorted(rows, near.rows[near.rows < n].long()).int()
        crossing = Crossing(rows, sent, received, near.rows.long(), own, returned, places)
        made.append(Share(crossing, outputs, _local(local, rows, outputs, block, features), replace(near, rows=None)))
    return made


def _both(
    columns: list[Numbers], wanted: list[torch.Tensor], sent: list[Numbers], comm: Communicator
) -> tuple[list[Numbers], list[Numbers]]:
    """(columns, sent), of which the receiving rank wants some alone: bool, for each of `columns`. Collective."""
    chosen = [(rank, kept) for (rank, _), kept in zip(columns, wanted, strict=True)]
    asked = [(rank, torch.empty(len(to), dtype=torch.bool)) for rank, to in sent]
    comm.exchange(chosen, asked, "plan").finish()

    def of(parts: list[Numbers], kept: list[Numbers]) -> list[Numbers]:
        return [(rank, each[which]) for (rank, each), (_, which) in zip(parts, kept, strict=True)]

    return of(columns, chosen), of(sent, asked)


def _nonempty(found: Iterable[Numbers]) -> list[Numbers]:
    return [part for part in found if len(part[1])]


def _blocks(adjacency: Adjacency, members: Sequence[torch.Tensor]) -> list[Block]:
    """The Block of all edges of each of these sets of own rows."""
    rows, columns, weight, edge = adjacency.all_edges
    order = torch.argsort(rows, stable=True)
    counts = torch.bincount(rows, minlength=adjacency.own.num_rows)
    begins, columns = torch.cumsum(counts, 0) - counts, columns.int()
    made = []
    for each in members:
        filled = counts[each] > 0
        of_row, first = counts[each][filled], begins[each][filled]
        part = order[torch.from_numpy(segments(first.numpy(), of_row.numpy()))]
        made.append(
            Block(
                torch.cat([torch.zeros(1, dtype=torch.int64), of_row.cumsum(0)]),
                columns[part],
                torch.nonzero(filled).squeeze(1).int(),
                None if weight is None else weight[part],
                0,
                None if edge is None else edge[part],
            )
        )
    return made


def _local(local: LocalGraph, rows: torch.Tensor, computed: torch.Tensor, block: Block, features: bool) -> LocalGraph:
    """The LocalGraph of a share."""
    some = len(computed) < len(rows)
    degree = local.inward.degree[computed]
    inward = replace(local.inward, own=_nothing(block, len(computed)), halo=[block], degree=degree)
    outward = inward
    if some or local.outward is not local.inward:
        degree = local.outward.degree[rows]
        outward = replace(local.outward, own=_nothing(block, len(rows)), halo=[], degree=degree)
    taken = torch.zeros(local.num_owned, dtype=torch.bool)
    taken[rows] = True
    assert not isinstance(local.features, StoredRows), "they stay in memory under such a schedule"
    return replace(
        local,
        inward=inward,
        outward=outward,
        features=rows_of(local.features, taken) if features else _NOT_NEEDED,
        labels=_NOT_NEEDED,
        split=_NOT_NEEDED,
        node_type=None if local.node_type is None else local.node_type[rows],
        original_id=local.original_id[rows],
        outputs=torch.searchsorted(rows, computed).int() if some else None,
        cluster=None,
    )


def _nothing(block: Block, rows: int) -> Block:
    """A block of these rows without edges."""
    edge = None if block.edge is None else block.edge[:0]
    return Block(torch.zeros(rows + 1, dtype=torch.int64), block.indices[:0], edge=edge)
