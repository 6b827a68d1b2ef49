"""The parts of a rank's share for evaluation and training: all of it, a subgraph, or a part per layer; and the values
of a run that never change.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.comm.ledger import Ledger
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.nodes import SharedRows
from hpcgnn.exchange.plan import HaloPlan
from hpcgnn.graph.local import LocalGraph
from hpcgnn.graph.transforms.pruning import WORTHWHILE, prune, training_nodes
from hpcgnn.graph.transforms.subgraphs import training_subgraph
from hpcgnn.graph.transforms.vertex_cover import least_rows, saves
from hpcgnn.graph.transforms.within_node import within_node
from hpcgnn.nn.graph import Graph
from hpcgnn.ops.draws import Randomness
from hpcgnn.plan.run_plan import RunPlan
from hpcgnn.schedules.base import HaloPolicy
from hpcgnn.schedules.full_halo import FullHalo


class Constants(dict[str, Any]):
    """A cache of named tensors. A call with (name, compute) returns the tensor, and computes it on first use.

    The ledger books the traffic of a computation as `input`.

    Attributes:
        trims: called after each computation, to release the source of the features, and memory that training would cut
            into pieces.
    """

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self._ledger = ledger
        self.trims: list[Callable[[], object]] = []

    def __call__(self, name: str, compute: Callable[[], torch.Tensor]) -> torch.Tensor:
        if name not in self:
            with torch.no_grad(), self._ledger.booked_as("input"):
                self[name] = compute()
            for trim in self.trims:
                trim()
        return self[name]

    def named(self, suffix: str) -> Callable[[str, Callable[[], torch.Tensor]], torch.Tensor]:
        """The same store, with a suffix to all names."""
        return lambda name, compute: self(f"{name} {suffix}", compute)


def crossing_rows(ranks: HaloPlan, nodes: HaloPlan, comm: Communicator) -> tuple[int, int]:
    """Rows that cross between nodes in an exchange: where ranks send each other rows, and where nodes do. Collective.
    ranks, nodes: the plans of all rows, for ranks and for nodes.
    """
    near = nodes.peers.ranks
    needed = sum(int(rows) for k, rows in enumerate(ranks.receive_counts) if ranks.peers.source(k + 1) not in near)
    # All ranks of a node have the plan of the node.
    counts = torch.tensor([needed, nodes.num_halo * (nodes.peers.place == 0)])
    of_ranks, of_nodes = comm.total(counts, "plan").tolist()
    return of_ranks, of_nodes


@dataclass
class Views:
    """The parts of a rank's share for evaluation and training.

    Attributes:
        local: the share, which may send sums of rows or read rows in place.
        subgraph: the training subgraph of `--inductive`, or None.
        shares: the part that each layer computes in training, None for all; [] if no layer is pruned.
        nodes: the training nodes alone, for a model without neighbours, or None.
        in_place: rows of other ranks of the node that are read in place, or None.
        crossing: the counts that decided it (--intra-node auto), or None.
    """

    local: LocalGraph
    subgraph: LocalGraph | None = None
    shares: list[LocalGraph | None] = field(default_factory=list)
    nodes: LocalGraph | None = None
    in_place: SharedRows | None = None
    crossing: tuple[int, int] | None = None

    @property
    def trained_on(self) -> LocalGraph:
        """The graph of the schedule: the subgraph, or all."""
        return self.local if self.subgraph is None else self.subgraph

    def rows_computed(self, layers: int) -> list[int]:
        """For every layer the own rows that it computes in training; [] if all layers compute all rows."""
        if self.nodes is not None:
            return [self.nodes.num_owned] * layers
        if not any(self.shares):
            return []
        # A share has outputs.
        return [
            self.local.num_owned if share is None else len(share.outputs)  # type: ignore[arg-type]
            for share in self.shares
        ]

    def graphs(
        self,
        halo: HaloPolicy,
        comm: Communicator,
        random: Randomness,
        constants: Constants,
        buffers: HaloBuffers,
        changing: list[torch.Tensor],
    ) -> tuple[Graph, Graph]:
        """(the Graph of evaluation, the Graph of training). halo: of the schedule; changing: input columns that change
        from step to step.
        """
        constants.trims.append(buffers.arena.trim)
        verbs = comm.total, random, constants, buffers.arena
        exact = halo if self.subgraph is None else FullHalo(self.local, comm, buffers)
        whole = Graph(self.local, exact, *verbs, changing)
        if self.subgraph is not None:
            of_subgraph = constants.named("of the subgraph")
            return whole, Graph(self.subgraph, halo, comm.total, random, of_subgraph, buffers.arena)
        if self.nodes is not None:
            return whole, Graph(self.nodes, exact, *verbs)
        return whole, whole.pruned(self._policies(halo)) if self.shares else whole

    def _policies(self, halo: HaloPolicy) -> dict[int, tuple[LocalGraph, HaloPolicy]]:
        """{layer: (its share, its halo policy)} of the layers that have a share of their own."""
        return {
            layer: (share, halo if share.inward is self.local.inward else halo.restricted(share))
            for layer, share in enumerate(self.shares)
            if share is not None
        }

    def replace_all(self, make: Callable[[LocalGraph], LocalGraph]) -> None:
        """Put make(graph) in place of the share, of the subgraph and of the layers' shares. Collective."""
        before, self.local = self.local, make(self.local)
        if self.subgraph is not None:
            self.subgraph = make(self.subgraph)
        for layer, share in enumerate(self.shares):
            if share is not None and share.inward is before.inward:
                self.shares[layer] = replace(self.local, outputs=share.outputs)
            elif share is not None:
                self.shares[layer] = make(share)

    def share_rows(self, rows: SharedRows, buffers: HaloBuffers, make: Callable[[LocalGraph], LocalGraph]) -> None:
        """Put make(graph), which reads rows of the node in place, in place of all parts. Collective."""
        self.in_place = rows
        self.replace_all(make)
        # Every number of rows that a matrix of a layer may have, in the same order on all ranks.
        shares = [share.outputs for share in self.shares if share is not None and share.outputs is not None]
        counts = [self.local.num_owned, int(self.local.mask("train").sum()), *(len(outputs) for outputs in shares)]
        buffers.arena.shared = rows.of_all(counts + ([] if self.subgraph is None else [self.subgraph.num_owned]))


def _read_in_place(views: Views, plan: RunPlan, comm: Communicator, buffers: HaloBuffers) -> None:
    """Let the share read rows of ranks of the same node in place."""
    memory = comm.node_memory()
    most = 1 if memory is None else max(comm.allgather_object(len(memory.ranks)))
    if memory is None or most == 1 or (plan.may_read_in_place and most == comm.size):
        return  # all is sent where each node has one rank; and unasked, where nothing crosses between nodes
    rows, whole = SharedRows(memory), views.local
    read = within_node(whole, rows, comm, plan.returns, plan.narrows)
    if plan.may_read_in_place:
        views.crossing = crossing_rows(whole.inward.plan, read.inward.plan, comm)
        if not saves(*views.crossing):
            return

    def make(graph: LocalGraph) -> LocalGraph:
        return read if graph is whole else within_node(graph, rows, comm, plan.returns, plan.narrows)

    views.share_rows(rows, buffers, make)


def make_views(
    local: LocalGraph, plan: RunPlan, model: Any, comm: Communicator, buffers: HaloBuffers, learns: bool
) -> Views:
    """The Views of a share under a plan. Collective. learns: whether anything is trained."""
    views = Views(local)
    if learns and plan.config.data.inductive:
        views.subgraph = training_subgraph(local, comm)
    elif learns and plan.prunes:
        views.shares = prune(local, *layers_to_prune(model), model.spec.keeps_input, comm)
    if comm.size > 1 and (plan.in_place or plan.may_read_in_place):
        _read_in_place(views, plan, comm, buffers)
    if comm.size > 1 and plan.halo != "rows":
        always = plan.halo == "least"
        views.replace_all(lambda graph: least_rows(graph, comm, always))
    if learns and plan.prunes and not plan.spec.changing and model.is_local:
        views.nodes = training_nodes(views.local, comm)
    return views


def layers_to_prune(model: Any) -> tuple[list[float], int]:
    """(worthwhile, prunable) of a model, as `prune` has them."""
    prunable = model.prunable_layers
    return [getattr(conv, "worthwhile", WORTHWHILE) for conv in model.convs] if prunable else [], prunable
