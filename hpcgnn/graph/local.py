"""A rank's share of the graph: its nodes, its edges as blocks, its halo plan, its features and labels."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import torch

from hpcgnn import kernels
from hpcgnn.comm.communicator import Communicator
from hpcgnn.exchange.plan import HaloPlan, build_halo_plan
from hpcgnn.graph.blocks import Block, EdgeArrays, edges_of, halo_blocks
from hpcgnn.graph.sparse_rows import SparseRows
from hpcgnn.graph.split import EdgeList, RemoteEdges, degrees_of, split_edges, with_loops
from hpcgnn.graphfile.label_files import LABELS
from hpcgnn.graphfile.storage import SPLITS
from hpcgnn.memory.stored_rows import StoredRows
from hpcgnn.placement.order import FoundEdges, LocalOrder


@dataclass(frozen=True)
class Adjacency:
    """One direction of the edges of a rank, ready to be streamed along.

    If the plan has neighbours, rows of the node's other ranks are read in place: then these are columns of `own`, and
    none of the halo.

    Attributes:
        degree: float64 (rows,), the sum of the weights of each row's edges in the whole graph, 0 where they cancel (see
            `weight_sums`).
        edges: EdgeList, or None where no model asks for one.
        counted: the edges of the own rows, where sums stand for some of them.
        row_counts: the edges of each own row, int32 (rows,), where sums stand for some and edges have weights.
    """

    own: Block
    halo: list[Block]
    plan: HaloPlan
    degree: torch.Tensor
    edges: EdgeList | None = None
    counted: int | None = None
    row_counts: torch.Tensor | None = None

    @property
    def num_edges(self) -> int:
        """Edges of the own rows."""
        if self.counted is not None:
            return self.counted
        return self.own.num_edges + sum(block.num_edges for block in self.halo)

    @property
    def all_edges(self) -> EdgeArrays:
        """The edges of an Adjacency from own nodes to own nodes; see `edges_of`."""
        own = self.own.num_rows if self.plan.columns is None else self.plan.columns.num_rows
        return edges_of((self.own, *self.halo), own, self.plan.num_halo)

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

    def carrying(self, features: torch.Tensor) -> "Adjacency":
        """The Adjacency whose edges have these features (E_p, F), in the order of its EdgeList."""
        assert self.edges is not None, "models that read features of edges have the edges kept"
        return replace(self, edges=replace(self.edges, features=features))

    @property
    def structure_nbytes(self) -> int:
        """Of the blocks and the plan, without the list of edges, which others may have as well."""
        return sum(block.nbytes for block in (self.own, *self.halo)) + self.plan.sending.nbytes


@dataclass(frozen=True, kw_only=True)
class LocalGraph:
    """A rank's share. Tensors over own nodes are in the local order (see placement/order.py).

    Attributes:
        inward: in-edges, along which features are aggregated.
        outward: out-edges, along which gradients are; the same object for an undirected graph.
        features: (n_p, F).
        labels: int64 (n_p,) with -1 for none, float32 (n_p, C) for multi-label, or float (n_p, T) with NaN for none.
        split: uint8 (n_p,).
        original_id: int64 (n_p,), the ids that randomness is keyed by.
        num_nodes: over all ranks.
        task: the kind of the labels (see graphfile/label_files.py).
        node_type: int32 (n_p,) or None.
        cluster: int32 (n_p,), the nodes' clusters of the graph file, or None where no schedule asks for them.
        feature_scales: float32 (F,), powers of two that the columns of features in int8 are to be multiplied by, or
            None.
        outputs: int32 (m,), increasing: the own nodes that a layer computes, where it does not compute all (see
            graph/transforms/pruning.py). Fields that such a layer does not need are None.
        position: (n_p, D), or None where the file has none.
        task_edges: {name: edges} of the task, without weights and types (see `TaskEdges` in load.py).
        source: OwnRows of the graph file, where the task reads more of them; else None.
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
    feature_scales: torch.Tensor | None = None
    outputs: torch.Tensor | None = None
    task_edges: Mapping[str, Adjacency] = field(default_factory=dict)
    source: Any = None
    position: torch.Tensor | None = None

    @property
    def output_id(self) -> torch.Tensor:
        """int64 (m,): the original ids of the nodes that are computed."""
        return self.original_id if self.outputs is None else self.original_id[self.outputs]

    @property
    def num_owned(self) -> int:
        return len(self.original_id)

    @cached_property
    def noise_of_mean(self) -> Callable[[torch.dtype], torch.Tensor]:
        """(m,) of a dtype: 1 / √ of how many rows the aggregate of each computed node is the sum of, at least 1."""
        counts = self.inward.summed_rows
        if self.outputs is not None and len(counts) != len(self.outputs):
            counts = counts[self.outputs]
        return cache(lambda dtype: counts.clamp(min=1).to(dtype).rsqrt_())

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

    Args:
        edges: in the local order `order`.
        cap: rows of a round.
        self_loops: 'add' gives every node that has none one loop of weight 1 and type `loop_type`; 'keep' leaves them.
        keep_edges: keep an EdgeList, and in every block the places of its edges there.
    """
    if self_loops == "add":
        edges = with_loops(edges, comm.rank, loop_type)  # the caller has let the others go, where memory counts
    degree, num_rows = degrees_of(edges), len(edges.indptr) - 1
    own, away = split_edges(edges, comm.rank, dtype, keep_edges)
    kept = None
    if keep_edges:
        weight = None if edges.weight is None else torch.from_numpy(edges.weight).to(dtype)
        kept = EdgeList(len(edges.owner), weight, None if edges.type is None else torch.from_numpy(edges.type))
    del edges
    return Adjacency(*with_halo(own, away, num_rows, num_rows, cap, comm, order), degree, kept)


def with_halo(
    own: Block,
    away: RemoteEdges,
    num_rows: int,
    num_columns: int,
    cap: int,
    comm: Communicator,
    order: LocalOrder = LocalOrder(),
) -> tuple[Block, list[Block], HaloPlan]:
    """(own Block, halo Blocks, HaloPlan) of edges that end at own rows, checked. Collective.

    away: its local_id is overwritten. num_rows, num_columns: of own nodes that edges end at and start from. order:
    LocalOrder, where the ranks number each other's nodes otherwise than their own.
    """
    plan, position = build_halo_plan(away.owner, away.local_id, cap, num_columns, comm, order.of)
    halo = halo_blocks(plan.starts, away.indptr, position, away.weight, away.place)
    kernels.check_block(own.indptr, own.indices, own.rows, num_rows, num_columns)
    return own, halo, plan


#: R and S; None for ones.
Scales = tuple[torch.Tensor | None, torch.Tensor | None]


def _inverse_root(degree: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.where(degree > 0, degree.clamp_min(torch.finfo(degree.dtype).tiny) ** -0.5, 0.0).to(dtype)


def _sum(graph: LocalGraph, dtype: torch.dtype) -> Scales:
    return None, None


def _mean(graph: LocalGraph, dtype: torch.dtype) -> Scales:
    """Σ w x / Σ w over the in-edges, where Σ w is not 0; w = 1 without weights."""
    degree = graph.inward.degree
    return torch.where(degree != 0, 1 / degree, 0.0).to(dtype), None


def _sym(graph: LocalGraph, dtype: torch.dtype) -> Scales:
    """D_in^-1/2 A D_out^-1/2 (Kipf and Welling, ICLR'17, eq. 2; with out-degrees of sources where the graph is
    directed). Degrees below 0 are refused before (app/graph_checks.py).
    """
    row_scale = _inverse_root(graph.inward.degree, dtype)
    alike = graph.outward is graph.inward
    return row_scale, row_scale if alike else _inverse_root(graph.outward.degree, dtype)


NORMS = {"sum": _sum, "mean": _mean, "sym": _sym}


def scales(graph: LocalGraph, norm: str, dtype: torch.dtype) -> Scales:
    """(R, S) of a graph: of `dtype`, or None for ones, R of the rows that are computed, S (n_p,). norm: a
    key of `NORMS`.

    Normalisation by degrees scales rows, so that no edge weight is ever read for it. An aggregation is y = R A S x with
    diagonal R (destinations) and S (sources). Degrees are of the whole graph, never of a part, so results do not change
    with the partition. A node without in-edges aggregates to zero, and so does one with a zero sum of weights.
    """
    return NORMS[norm](graph, dtype)
