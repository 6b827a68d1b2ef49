"""The shares of a rank's rows that the steps of an epoch compute one after another (schedules/historical.py).

A share has whole clusters of the graph file. Draws for their numbers deal them out, so the shares are the same for
every number of ranks and every map. The columns of its edges are all own nodes and then the whole halo, for its sums
read rows of other shares as well.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from hpcgnn import kernels
from hpcgnn.comm import Communicator
from hpcgnn.exchange.historical import Crossing, Part
from hpcgnn.exchange.plan import gather_halo, parts
from hpcgnn.graph.blocks import Block, sampled, transposed
from hpcgnn.graph.local import Adjacency, LocalGraph
from hpcgnn.graph.transforms.inductive import rows_of
from hpcgnn.graph.transforms.subgraphs import edges_of
from hpcgnn.memory.shelf import OnDisk

# As in pruning.py.
_NOT_NEEDED: Any = None


@dataclass(frozen=True)
class Share:
    """A share of a rank's rows.

    Attributes:
        crossing: the rows, and the messages about them.
        local: their LocalGraph. Its in-edges are one halo block, whose columns are own nodes and then the halo.
        near: the transposed block of the edges from rows of the share, on any rank, with a row for each that has any.
    """

    crossing: Crossing
    local: LocalGraph
    near: Block

    @property
    def rows(self) -> torch.Tensor:
        """int64 (b,), increasing: the own rows."""
        return self.crossing.rows

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
        return self.block.nbytes + transposes + self.rows.nbytes + copied


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
    local: LocalGraph, share: torch.Tensor, count: int, comm: Communicator, features: bool
) -> list[Share]:
    """The Shares of a rank. Collective. share: int64 (n_p,), below `count`; features: whether they need their own."""
    plan, n = local.inward.plan, local.num_owned
    of_halo = gather_halo(plan, share, comm)
    of_columns = torch.cat([share, of_halo])
    rows_to = [(plan.dest(k), plan.rows_to(k)) for k, _, _ in parts(plan.send_counts)]
    members = [torch.nonzero(share == number).squeeze(1) for number in range(count)]
    made = []
    for number, (rows, block) in enumerate(zip(members, _blocks(local.inward, members), strict=True)):
        near = transposed(sampled(block, of_columns == number, 0, renumber=False))
        sent = _nonempty((rank, to[share[to.long()] == number]) for rank, to in rows_to)
        received = _nonempty(
            (plan.source(k), (n + first + torch.nonzero(of_halo[first : first + size] == number).squeeze(1)).int())
            for k, first, size in parts(plan.receive_counts)
        )
        assert near.rows is not None, "a transposed block says which rows it stores"
        used = [(rank, torch.isin(columns, near.rows).byte()) for rank, columns in received]
        asked = [(rank, torch.empty(len(to), dtype=torch.uint8)) for rank, to in sent]
        comm.exchange(used, asked, "plan").finish()
        returned = _nonempty(
            (r, torch.searchsorted(near.rows, columns[kept > 0]).int())
            for (r, columns), (_, kept) in zip(received, used, strict=True)
        )
        places = _nonempty(
            (r, torch.searchsorted(rows, to[kept > 0].long()).int())
            for (r, to), (_, kept) in zip(sent, asked, strict=True)
        )
        own = torch.searchsorted(rows, near.rows[near.rows < n].long()).int()
        crossing = Crossing(rows, sent, received, near.rows.long(), own, returned, places)
        made.append(Share(crossing, _local(local, rows, block, features), replace(near, rows=None)))
    return made


def _nonempty(found: Iterable[Part]) -> list[Part]:
    return [part for part in found if len(part[1])]


def _blocks(adjacency: Adjacency, members: Sequence[torch.Tensor]) -> list[Block]:
    """The Block of all edges of each of these sets of own rows."""
    (rows, columns, weight, edge), n = edges_of(adjacency), adjacency.own.num_rows
    place = torch.empty(n, dtype=torch.int32)
    place[torch.cat(list(members))] = torch.arange(n, dtype=torch.int32)
    to = place[rows]
    order = torch.argsort(to, stable=True)
    counts = torch.bincount(to, minlength=n)
    columns = columns[order].int()
    weight, edge = (None if each is None else each[order] for each in (weight, edge))
    made, first = [], 0
    for of_row in counts.split([len(each) for each in members]):
        filled = of_row > 0
        indptr = torch.cat([torch.zeros(1, dtype=torch.int64), of_row[filled].cumsum(0)])
        part = slice(first, first + int(indptr[-1]))
        first = part.stop
        made.append(
            Block(
                indptr,
                columns[part].clone(),
                torch.nonzero(filled).squeeze(1).int(),
                None if weight is None else weight[part].clone(),
                0,
                None if edge is None else edge[part].clone(),
            )
        )
    return made


def _local(local: LocalGraph, rows: torch.Tensor, block: Block, features: bool) -> LocalGraph:
    """The LocalGraph of a share."""
    edge = None if block.edge is None else block.edge[:0]
    nothing = Block(torch.zeros(len(rows) + 1, dtype=torch.int64), block.indices[:0], edge=edge)
    inward = replace(local.inward, own=nothing, halo=[block], degree=local.inward.degree[rows])
    outward = inward
    if local.outward is not local.inward:
        outward = replace(local.outward, own=nothing, halo=[], degree=local.outward.degree[rows])
    taken = torch.zeros(local.num_owned, dtype=torch.bool)
    taken[rows] = True
    assert not isinstance(local.features, OnDisk), "they stay in memory under a schedule without --memory"
    return replace(
        local,
        inward=inward,
        outward=outward,
        features=rows_of(local.features, taken) if features else _NOT_NEEDED,
        labels=_NOT_NEEDED,
        split=_NOT_NEEDED,
        node_type=None if local.node_type is None else local.node_type[rows],
        original_id=local.original_id[rows],
        cluster=None,
        compact=None,
    )
