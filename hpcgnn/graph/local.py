"""What one rank holds of the graph: its nodes, its edges as blocks, its halo plan, its features and labels."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from hpcgnn import kernels
from hpcgnn.comm import Communicator
from hpcgnn.exchange.compact import Compact
from hpcgnn.exchange.node_stream import Neighbours
from hpcgnn.exchange.plan import HaloPlan, build_halo_plan
from hpcgnn.graph.blocks import Block, halo_blocks
from hpcgnn.graph.sparse_rows import SparseRows
from hpcgnn.graph.split import EdgeList, RemoteEdges, split_edges
from hpcgnn.graphfile.labels import LABELS
from hpcgnn.graphfile.storage import SPLITS
from hpcgnn.memory.stored import StoredRows
from hpcgnn.placement.order import FoundEdges, LocalOrder


@dataclass(frozen=True)
class Adjacency:
    """One direction of the edges of a rank, ready to be streamed along. degree: float64 (rows,), the sum of the weights
    of each row's edges in the whole graph, 0 where they cancel (see sums.py). edges: EdgeList, or None where no model
    asks for one. counted, row_counts: the edges of the own rows, and of each of them (int32 (rows,), where edges have
    weights), where sums stand for some of them. near: None, or what is known of
    the node's other ranks where their rows are read in place: then these are columns of `own`, and none of the halo.
    """

    own: Block
    halo: list[Block]
    plan: HaloPlan
    degree: torch.Tensor
    edges: EdgeList | None = None
    counted: int | None = None
    row_counts: torch.Tensor | None = None
    near: Neighbours | None = None

    @property
    def num_edges(self) -> int:
        """Edges of the own rows."""
        if self.counted is not None:
            return self.counted
        return self.own.num_edges + sum(block.num_edges for block in self.halo)

    @property
    def edge_counts(self) -> torch.Tensor:
        """int64 (rows,): the number of edges of each row, where all of them are rows and none are sums."""
        assert self.plan.sending.sums is None, "where sums arrive, edges do not"
        total = torch.diff(self.own.indptr)
        for block in self.halo:
            assert block.rows is not None, "a round's block says which rows it stores"
            total[block.rows.long()] += torch.diff(block.indptr)
        return total

    @property
    def summed_rows(self) -> torch.Tensor:
        """How many rows an aggregate of each row is the sum of: (rows,), of any type."""
        if self.own.weight is None:
            return self.degree
        return self.edge_counts if self.row_counts is None else self.row_counts

    @property
    def nbytes(self) -> int:
        return self.structure_nbytes + (0 if self.edges is None else self.edges.nbytes)

    @property
    def structure_nbytes(self) -> int:
        """Of the blocks and the plan, without the list of edges, which others may have as well."""
        return sum(block.nbytes for block in (self.own, *self.halo)) + self.plan.sending.nbytes


@dataclass(frozen=True, kw_only=True)
class LocalGraph:
    """A rank's share. Tensors over own nodes are in the local order (see placement/order.py).

    inward: in-edges, along which features are aggregated. outward: out-edges, along which gradients are; the same
    object for an undirected graph. features: (n_p, F), SparseRows or StoredRows. labels, task: int64 (n_p,) with -1 for
    none, float32 (n_p, C) for multi-label, or float (n_p, T) with NaN for none, and what they are for (see
    graphfile/labels.py). node_type: int32 (n_p,) or None. cluster: int32 (n_p,), the nodes' clusters of the graph file,
    or None where no schedule asks for them.
    split: uint8 (n_p,). original_id: int64 (n_p,), the ids that randomness is keyed by. num_nodes: over all ranks.
    compact: how dense features travel, if that is not as rows. feature_scales: float32 (F,), powers of two that the
    columns of features in int8 are to be multiplied by, or None.
    feature_rows: the structure along which features travel, where it is not `inward`: that one sends sums then.
    outputs: int32 (m,), increasing: the own nodes that a layer computes, where it does not compute all (see
    graph/transforms/pruning.py); what such a layer does not need is None.
    beside: {name: edges} that the task takes out of the graph or reads in addition, without weights and types (see
    `Beside` in load.py).
    """

    inward: Adjacency
    outward: Adjacency
    features: torch.Tensor | SparseRows | StoredRows
    labels: torch.Tensor
    split: torch.Tensor
    original_id: torch.Tensor
    num_nodes: int
    num_classes: int
    task: str
    node_type: torch.Tensor | None = None
    cluster: torch.Tensor | None = None
    compact: Compact | None = None
    feature_scales: torch.Tensor | None = None
    feature_rows: Adjacency | None = None
    outputs: torch.Tensor | None = None
    beside: Mapping[str, Adjacency] = field(default_factory=dict)

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
        return self.inward.edge_counts

    def mask(self, split: str) -> torch.Tensor:
        """bool (n_p,): own nodes of a split ('train', 'val', 'test') that have a label."""
        return (self.split == SPLITS[split]) & LABELS[self.task].labelled(self.labels)


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
    split = split_edges(edges, comm.rank, self_loops == "add", loop_type, dtype, keep_edges)
    del edges  # the caller has let it go as well, where memory counts
    num_rows = len(split.degree)
    own, halo, plan = with_halo(split.own, split.away, num_rows, num_rows, cap, comm, order)
    return Adjacency(own, halo, plan, torch.from_numpy(split.degree), split.kept)


def with_halo(
    own: Block, away: RemoteEdges, num_rows: int, num_columns: int, cap: int, comm: Communicator, order: LocalOrder
) -> tuple[Block, list[Block], HaloPlan]:
    """(own Block, halo Blocks, HaloPlan) of edges that end at own rows, checked. Collective.

    away: its local_id is overwritten. num_rows, num_columns: of own nodes that edges end at and start from. order:
    LocalOrder, where the ranks number each other's nodes otherwise than their own.
    """
    plan, position = build_halo_plan(away.owner, away.local_id, cap, num_columns, comm, order)
    halo = halo_blocks(plan.starts, away.indptr, position, away.weight, away.place)
    kernels.check_block(own.indptr, own.indices, own.rows, num_rows, num_columns)
    return own, halo, plan
