"""What one rank holds of the graph: its nodes, its edges as blocks, its halo plan, its features and labels."""

from dataclasses import dataclass

import numpy as np
import torch

from hpcgnn import kernels
from hpcgnn.comm import Communicator
from hpcgnn.exchange.compact import Compact
from hpcgnn.exchange.plan import HaloPlan, build_halo_plan
from hpcgnn.graph.blocks import Block, halo_blocks, own_block
from hpcgnn.graph.sparse_rows import SparseRows
from hpcgnn.graph.sums import weight_sums
from hpcgnn.graphfile.storage import SPLITS
from hpcgnn.placement.order import FoundEdges, LocalOrder
from hpcgnn.placement.ownership import MOST_INT32


@dataclass(frozen=True)
class EdgeList:
    """What the edges of the own rows carry, in the rank's order: by own row, as the file has them, an added self loop
    last.

    count: E_p; weight: (E_p,) of the computing dtype or None; type: int32 (E_p,) or None. `Block.edge` points into it.
    """

    count: int
    weight: torch.Tensor | None
    type: torch.Tensor | None

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in (self.weight, self.type) if each is not None)


@dataclass(frozen=True)
class Adjacency:
    """One direction of the edges of a rank, ready to be streamed along. degree: float64 (rows,), the sum of the weights
    of each row's edges in the whole graph, 0 where they cancel (see sums.py). edges: EdgeList, or None where no model
    asks for one.
    """

    own: Block
    halo: list[Block]
    plan: HaloPlan
    degree: torch.Tensor
    edges: EdgeList | None = None

    @property
    def num_edges(self) -> int:
        return self.own.num_edges + sum(block.num_edges for block in self.halo)

    @property
    def nbytes(self) -> int:
        kept = 0 if self.edges is None else self.edges.nbytes
        sent = sum(rows.nbytes for rows in self.plan.send_rows)
        return sum(block.nbytes for block in (self.own, *self.halo)) + sent + kept


@dataclass(frozen=True, kw_only=True)
class LocalGraph:
    """A rank's share. Tensors over own nodes are in the local order (see placement/order.py).

    inward: in-edges, along which features are aggregated. outward: out-edges, along which gradients are; the same
    object for an undirected graph. features: (n_p, F) or SparseRows. labels: int64 (n_p,) with -1 for none, or float
    (n_p, C) for multi-label. node_type: int32 (n_p,) or None.
    split: uint8 (n_p,). original_id: int64 (n_p,), the ids that randomness is keyed by. num_nodes: over all ranks.
    compact: how dense features travel, if that is not as rows.
    outputs: int32 (m,), increasing: the own nodes that a layer computes, where it does not compute all (see
    pruning.py); what such a layer does not need is None.
    """

    inward: Adjacency
    outward: Adjacency
    features: torch.Tensor | SparseRows
    labels: torch.Tensor
    split: torch.Tensor
    original_id: torch.Tensor
    num_nodes: int
    num_classes: int
    multi_label: bool
    node_type: torch.Tensor | None = None
    compact: Compact | None = None
    outputs: torch.Tensor | None = None

    @property
    def output_id(self) -> torch.Tensor:
        """int64 (m,): the original ids of the nodes that are computed."""
        return self.original_id if self.outputs is None else self.original_id[self.outputs]

    @property
    def num_owned(self) -> int:
        return len(self.original_id)

    @property
    def in_degree(self) -> torch.Tensor:
        """int64 (n_p,): the number of in-edges of the own nodes."""
        total = torch.diff(self.inward.own.indptr)
        for block in self.inward.halo:
            assert block.rows is not None, "a round's block says which rows it stores"
            total[block.rows.long()] += torch.diff(block.indptr)
        return total

    def mask(self, split: str) -> torch.Tensor:
        """bool (n_p,): own nodes of a split ('train', 'val', 'test') that have a label."""
        labelled = torch.ones(self.num_owned, dtype=torch.bool) if self.multi_label else self.labels >= 0
        return (self.split == SPLITS[split]) & labelled


def build_adjacency(
    edges: FoundEdges,
    order: LocalOrder,
    comm: Communicator,
    cap: int,
    self_loops: str,
    dtype: torch.dtype,
    keep_edges: bool = False,
    loop_type: int = 0,
) -> Adjacency:
    """Blocks and plan from the edges of the own nodes. Collective.

    edges: in the local order `order`. self_loops: 'add' gives every node that has none one
    loop of weight 1 and type `loop_type`; 'keep' leaves them. cap: rows of a round. keep_edges: keep an EdgeList, and
    in every block where its edges stand in it.
    """
    num_rows = len(edges.indptr) - 1
    rows = np.repeat(np.arange(num_rows, dtype=np.int32), np.diff(edges.indptr))
    owner, local_id, weight, kind = edges.owner, edges.local_id, edges.weight, edges.type
    if self_loops == "add":
        rows, owner, local_id, weight, kind = _add_self_loops(
            rows, owner, local_id, weight, kind, loop_type, num_rows, comm
        )
    degree = weight_sums(rows, weight, num_rows)
    weights = None if weight is None else torch.from_numpy(np.ascontiguousarray(weight)).to(dtype)
    narrow = len(rows) <= MOST_INT32
    place = torch.arange(len(rows), dtype=torch.int32 if narrow else torch.int64) if keep_edges else None
    own, halo, plan = assemble(rows, owner, local_id, weights, place, num_rows, num_rows, cap, comm, order)
    kept = EdgeList(len(rows), weights, None if kind is None else torch.from_numpy(kind)) if keep_edges else None
    return Adjacency(own, halo, plan, torch.from_numpy(degree), kept)


def assemble(
    rows: np.ndarray,
    owner: np.ndarray,
    local_id: np.ndarray,
    weight: torch.Tensor | None,
    place: torch.Tensor | None,
    num_rows: int,
    num_columns: int,
    cap: int,
    comm: Communicator,
    order: LocalOrder = LocalOrder(),
) -> tuple[Block, list[Block], HaloPlan]:
    """(own Block, halo Blocks, HaloPlan) of edges that end at own rows, checked. Collective.

    rows: int (E,) ascending; owner, local_id: int32 (E,), where the sources are; weight, place: (E,).
    num_rows, num_columns: of own nodes that edges end at and start from. order: LocalOrder, where the ranks number each
    other's nodes otherwise than their own.
    """
    mine = owner == comm.rank
    away = ~mine
    here, there = torch.from_numpy(mine), torch.from_numpy(away)
    own = own_block(num_rows, rows[mine], local_id[mine], *(t if t is None else t[here] for t in (weight, place)))
    plan, position = build_halo_plan(owner[away], local_id[away], cap, num_columns, comm, order)
    halo = halo_blocks(plan.starts, rows[away], position, *(t if t is None else t[there] for t in (weight, place)))
    kernels.check_block(own.indptr, own.indices, own.rows, num_rows, num_columns)
    for index, block in enumerate(halo):
        kernels.check_block(
            block.indptr, block.indices, block.rows, num_rows, int(plan.starts[index + 1] - plan.starts[index])
        )
    return own, halo, plan


def _add_self_loops(
    rows: np.ndarray,
    owner: np.ndarray,
    local_id: np.ndarray,
    weight: np.ndarray | None,
    kind: np.ndarray | None,
    loop_type: int,
    num_rows: int,
    comm: Communicator,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Edges with one loop of weight 1 appended to each row that has none, rows ascending."""
    looped = np.zeros(num_rows, bool)
    looped[rows[(owner == comm.rank) & (local_id == rows)]] = True
    missing = np.flatnonzero(~looped).astype(np.int32)
    merged_rows = np.concatenate([rows, missing])
    order = np.argsort(merged_rows, kind="stable")
    owner = np.concatenate([owner, np.full(len(missing), comm.rank, owner.dtype)])[order]
    local_id = np.concatenate([local_id, missing])[order]
    if weight is not None:
        weight = np.concatenate([weight, np.ones(len(missing), weight.dtype)])[order]
    if kind is not None:
        kind = np.concatenate([kind, np.full(len(missing), loop_type, kind.dtype)])[order]
    return merged_rows[order], owner, local_id, weight, kind
