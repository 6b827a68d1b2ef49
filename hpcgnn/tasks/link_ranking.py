"""The ranks of held-out edges: among drawn nodes, among pairs that all of them share, or among nodes of their own."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import torch

from hpcgnn import kernels
from hpcgnn.comm.communicator import Communicator
from hpcgnn.config import Config
from hpcgnn.exchange.buffers import HaloBuffers
from hpcgnn.exchange.plan import gather_halo
from hpcgnn.exchange.stream import Stream
from hpcgnn.graph.blocks import Block
from hpcgnn.graph.local import Adjacency, LocalGraph
from hpcgnn.graphfile.given_links import EACH, HELD, SHARED
from hpcgnn.ops.draws import Purpose
from hpcgnn.ops.pair_ranks import Known, Scorer, pair_ranks, pair_scores, ranks_among_all, ranks_among_own
from hpcgnn.ops.pairs import NodePool
from hpcgnn.tasks.links import KS


class Ranking(Protocol):
    """Ranks the held-out edges of a rank. Made collectively."""

    def ranks(self, h: torch.Tensor, scorer: Any) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield (split, float64 (m,) ranks of its edges on this rank) for embeddings h (n_p, F) of owned nodes.
        Collective.

        The ledger books rows as `halo_forward`; the caller marks them as an evaluation.
        """


def ranking_of(
    local: LocalGraph, counts: Mapping[str, int], comm: Communicator, buffers: HaloBuffers, config: Config
) -> Ranking:
    """Return the Ranking for the negatives of a rank's held-out edges. Collective.

    Args:
        local: the rank's share of the graph.
        counts: {split: edges over all ranks}.
        comm: the communicator.
        buffers: communication buffers.
        config: the configuration.
    """
    held = _streams(local.held, buffers, comm)
    negatives = _streams(local.negatives, buffers, comm)
    if local.compared_with == SHARED:
        return _AmongAll(held, negatives, comm)
    if local.compared_with == EACH:
        return _AmongOwn(held, negatives, counts, comm)
    return _AmongDrawn(held, local, comm, config)


def with_ids(edges: Iterable[Adjacency], ids: torch.Tensor, comm: Communicator) -> list[tuple[Block, torch.Tensor]]:
    """(block, the original ids of its columns) of the in-edges of own nodes, whose own ids are given. Collective."""
    found = []
    for each in edges:
        others = gather_halo(each.plan, ids, comm)
        found.append((each.own, ids))
        found += [(block, others[block.first_column :]) for block in each.halo]
    return found


def _streams(pairs: Mapping[str, Adjacency], buffers: HaloBuffers, comm: Communicator) -> dict[str, Stream]:
    return {split: Stream(edges.own, edges.halo, edges.plan, buffers, comm) for split, edges in pairs.items()}


class _AmongDrawn(Ranking):
    def __init__(self, held: Mapping[str, Stream], local: LocalGraph, comm: Communicator, config: Config) -> None:
        self._held, self._comm, ids = held, comm, local.original_id
        key = kernels.stream_key(config.run.seed, 0, 0, int(Purpose.LINK_CANDIDATE))
        self._pool = NodePool.drawn(key, config.task.link_negatives, ids, local.num_nodes)
        known = with_ids((local.inward, *local.held.values(), *local.known), ids, comm)
        self._known = Known(self._pool, local.num_owned, known)

    def ranks(self, h: torch.Tensor, scorer: Scorer) -> Iterator[tuple[str, torch.Tensor]]:
        rows = self._pool.gathered(h, self._comm, "evaluation")
        for split in HELD:
            yield split, pair_ranks(self._held[split], h, rows, self._known, scorer)


class _AmongAll(Ranking):
    def __init__(self, held: Mapping[str, Stream], negatives: Mapping[str, Stream], comm: Communicator) -> None:
        self._held, self._negatives, self._comm = held, negatives, comm

    def ranks(self, h: torch.Tensor, scorer: Scorer) -> Iterator[tuple[str, torch.Tensor]]:
        for split in HELD:
            scores, negatives = (pair_scores(each[split], h, scorer)[1] for each in (self._held, self._negatives))
            yield split, ranks_among_all(scores, negatives, max(KS), self._comm)


class _AmongOwn(Ranking):
    def __init__(
        self,
        held: Mapping[str, Stream],
        negatives: Mapping[str, Stream],
        counts: Mapping[str, int],
        comm: Communicator,
    ) -> None:
        self._held, self._negatives, self._counts, self._comm = held, negatives, counts, comm

    def ranks(self, h: torch.Tensor, scorer: Scorer) -> Iterator[tuple[str, torch.Tensor]]:
        for split in HELD:
            pairs, negatives = (pair_scores(each[split], h, scorer) for each in (self._held, self._negatives))
            yield split, ranks_among_own(pairs, negatives, self._counts[split], self._comm)
