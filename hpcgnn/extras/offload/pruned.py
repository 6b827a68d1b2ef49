"""The memory that the parts of pruned layers take, known before they are made."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from hpcgnn.comm.communicator import Communicator
from hpcgnn.exchange.plan import gather_halo
from hpcgnn.graph.local import Adjacency, LocalGraph
from hpcgnn.graph.transforms.pruning import numbers, rows_of_layers, tiles

# Of each remote edge, while its halo is agreed on and its rounds are made.
_MAKING = 40


@dataclass(frozen=True)
class FilteredSize:
    """Bytes of one rank. held: of the result of `filtered`; making: of its temporary memory."""

    held: int
    making: int


def pruned_size(
    local: LocalGraph, worthwhile: Sequence[float], prunable: int, keeps_input: bool, comm: Communicator
) -> FilteredSize:
    """The memory of `prune` on this rank, known before it runs. Collective. local: its features are not read."""
    held = making = 0
    for layer, inputs, outputs in rows_of_layers(local, local.mask("train"), worthwhile, prunable, comm):
        held += 4 * int(outputs.sum())
        if layer == 0 and keeps_input:
            continue
        held += 8 * int(inputs.sum())  # original ids
        source, destination = numbers(inputs), numbers(outputs)
        for adjacency, rows, columns in ((local.inward, destination, source), (local.outward, source, destination)):
            size = _filtered_size(adjacency, rows, columns, comm)
            held, making = held + size.held, max(making, size.making)
    return FilteredSize(held, making)


def _filtered_size(
    adjacency: Adjacency, row_number: torch.Tensor, column_number: torch.Tensor, comm: Communicator
) -> FilteredSize:
    """The memory of `filtered` between rows and columns of these numbers. Collective.

    On one rank `held` is exact. On more it assumes the same number of rounds and of sent rows as before.
    """
    remote = gather_halo(adjacency.plan, column_number, comm)
    num_rows = int((row_number >= 0).sum())
    here = sum(int(tile.counts.sum()) for tile in tiles(adjacency.own, row_number, column_number))
    there = stored = 0
    for block in adjacency.halo:
        for tile in tiles(block, row_number, remote):
            there, stored = there + int(tile.counts.sum()), stored + len(tile.rows)
    own = adjacency.own
    each = 4 + sum(column.itemsize for column in (own.weight, own.edge) if column is not None)
    held = each * (here + there) + 8 * (num_rows + 1) + 8 * num_rows  # of the own block, and the degrees
    held += 12 * stored + 8 * len(adjacency.halo) + adjacency.plan.sending.nbytes
    return FilteredSize(held, _MAKING * there)
