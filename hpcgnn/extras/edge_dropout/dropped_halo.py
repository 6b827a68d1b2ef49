"""The halo policy of training with `--edge-dropout`: every remote row, along the edges that are left in this epoch.

All layers share one draw, and so do both passes, as in the paper (DropEdge: Rong et al., ICLR 2020, section 4.1).
"""

from dataclasses import dataclass

import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.row_codec import RowCodec
from hpcgnn.extras.edge_dropout.dropping import Degrees, DroppedEdges
from hpcgnn.graph.local import LocalGraph
from hpcgnn.ops.draws import Purpose, Randomness
from hpcgnn.ops.operator_context import HaloFacts
from hpcgnn.ops.operators import Made, Operator
from hpcgnn.schedules.full_halo import FullHalo


@dataclass(frozen=True)
class Dropping:
    """Which edges are dropped.

    Attributes:
        exact: the FullHalo with all edges.
        rate: probability of dropping an edge.
        random: source of the draws.
    """

    exact: FullHalo
    rate: float
    random: Randomness


class DroppedHalo(FullHalo):
    """A FullHalo with dropped edges.

    All ranks make the operators anew in each epoch, for operators hold scales by degrees.

    Attributes:
        dropping: which edges are dropped.
        inside: None, or the policy of the whole graph if a layer computes only a part `local` of it.
    """

    def __init__(
        self,
        local: LocalGraph,
        comm: Communicator,
        buffers: HaloBuffers,
        wire: RowCodec,
        facts: HaloFacts,
        dropping: Dropping,
        inside: "DroppedHalo | None" = None,
    ) -> None:
        self._dropping, self._parts = dropping, list[DroppedHalo]()
        self._undirected: bool = local.outward is local.inward if inside is None else inside._undirected
        degrees = None if inside is None else _Among(inside, local)
        ids = facts.inward_ids(), facts.outward_ids()
        self._left = DroppedEdges(local, ids, dropping.rate, self._undirected, degrees)
        super().__init__(self._left.local, comm, buffers, wire, facts)

    def operator(self, description: Operator[Made]) -> Made:
        """See HaloPolicy. A loss of edges uses all of them."""
        if not description.messages:
            return self._dropping.exact.operator(description)
        self._left.draw()
        return super().operator(description)

    def begin_epoch(self, epoch: int) -> None:
        """See HaloPolicy."""
        super().begin_epoch(epoch)
        self._renew(self._dropping.random.key(Purpose.DROPPED_EDGE, 0))

    def restricted(self, local: LocalGraph) -> FullHalo:
        """See HaloPolicy."""
        means = self._comm, self._buffers, self._wire, HaloFacts(local, self._comm)
        self._parts.append(DroppedHalo(local, *means, self._dropping, self))
        return self._parts[-1]

    @property
    def kept_bytes(self) -> int:
        """Return the bytes of the remaining edge blocks."""
        return self._left.kept_bytes + sum(part.kept_bytes for part in self._parts)

    def _renew(self, key: int) -> None:
        self._operators.clear()
        self._left.begin(key)
        for part in self._parts:
            part._renew(key)


class _Among:
    """Degrees in the whole graph, for the rows of a layer's part of it."""

    def __init__(self, inside: DroppedHalo, local: LocalGraph) -> None:
        self._whole, among = inside._left, inside._local.original_id
        self._places = _places(local.output_id, among), _places(local.original_id, among)

    def __call__(self) -> Degrees:
        inward, outward = (degree[places] for degree, places in zip(self._whole.degrees(), self._places, strict=True))
        return inward, outward


def _places(ids: torch.Tensor, among: torch.Tensor) -> torch.Tensor:
    """int64: where each of the ids stands among others."""
    ordered, order = torch.sort(among)
    return order[torch.searchsorted(ordered, ids)]
