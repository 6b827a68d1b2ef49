"""The edges between some rows and some columns of a rank's adjacency, with a halo of their own.

It goes over the edges some rows at a time, once to count them and once to take them. In addition to the whole graph a
rank holds the result, and enough of the edges to other ranks for agreeing on their halo.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from hpcgnn.comm import Communicator
from hpcgnn.exchange.plan import gather_halo
from hpcgnn.graph.blocks import Block
from hpcgnn.graph.local import Adjacency, with_halo
from hpcgnn.graph.split import RemoteEdges
from hpcgnn.graphfile.ranges import row_blocks, segments
from hpcgnn.placement.order import LocalOrder


def numbers(mask: torch.Tensor) -> torch.Tensor:
    """int32 (n,): the number of each node among the nodes of the mask, -1 for the others."""
    return torch.where(mask, torch.cumsum(mask, 0, dtype=torch.int32) - 1, -1)


def filtered(
    adjacency: Adjacency,
    rows: torch.Tensor,
    columns: torch.Tensor,
    row_number: torch.Tensor,
    column_number: torch.Tensor,
    comm: Communicator,
) -> Adjacency:
    """The Adjacency between own rows (n_p,) bool and columns (n_p,) bool, numbered anew. Collective."""
    plan, shape = adjacency.plan, (int(rows.sum()), int(columns.sum()))
    remote = gather_halo(plan, column_number, comm)
    ranks = [plan.source(offset) for offset in range(1, plan.size)]
    owners = np.repeat(np.array(ranks, np.min_scalar_type(plan.size)), plan.receive_counts)
    here = _taken([adjacency.own], row_number, column_number, shape[0])
    own = Block(torch.from_numpy(here.indptr), torch.from_numpy(here.local_id), None, here.weight, None, here.place)
    away = _taken(adjacency.halo, row_number, remote, shape[0], owners)
    own, halo, fewer = with_halo(own, away, *shape, plan.cap, comm, LocalOrder())
    return Adjacency(own, halo, fewer, adjacency.degree[rows], adjacency.edges)


@dataclass(frozen=True)
class Tile:
    """Edges of a block with numbers at both ends.

    Attributes:
        edges: int64 (E,), their numbers in the block.
        columns: int32 (E,), the numbers of their columns.
        rows: int32 (R,), the numbers of their rows.
        counts: int64 (R,), edges of each row.
    """

    edges: np.ndarray
    columns: np.ndarray
    rows: np.ndarray
    counts: np.ndarray


def tiles(block: Block, row_number: torch.Tensor, column_number: torch.Tensor) -> Iterator[Tile]:
    """column_number: of the halo, or of own nodes for the own block."""
    indptr, indices, first_column = block.indptr.numpy(), block.indices.numpy(), block.first_column or 0
    number, column_numbers = row_number.numpy(), column_number.numpy()[first_column:]
    for first, last in row_blocks(indptr):
        rows = number[first:last] if block.rows is None else number[block.rows[first:last].numpy()]
        there = np.flatnonzero(rows >= 0)
        if len(there) == 0:
            continue
        begins, ends = indptr[first + there], indptr[first + there + 1]
        edges = segments(begins, ends - begins)
        columns = column_numbers[indices[edges]]
        taken = columns >= 0
        of_row = np.repeat(np.arange(len(there)), ends - begins)[taken]
        counts = np.bincount(of_row, minlength=len(there))
        filled = counts > 0
        yield Tile(edges[taken], columns[taken], rows[there[filled]], counts[filled])


def _taken(
    blocks: Sequence[Block],
    row_number: torch.Tensor,
    column_number: torch.Tensor,
    num_rows: int,
    owners: np.ndarray | None = None,
) -> RemoteEdges:
    """The edges of all blocks with numbers at both ends, in the order of rows, in a row one block after another.

    owners: of the columns; None: without.
    """
    indptr = np.zeros(num_rows + 1, np.int64)
    for block in blocks:
        for tile in tiles(block, row_number, column_number):
            indptr[tile.rows + 1] += tile.counts
    np.cumsum(indptr, out=indptr)
    at, total = indptr[:-1].copy(), int(indptr[-1])
    columns = np.empty(total, np.int32)
    owner = np.zeros(0, np.uint8) if owners is None else np.empty(total, owners.dtype)
    weight, edge = (
        torch.empty(total, dtype=like.dtype) if blocks and (like := getattr(blocks[0], name)) is not None else None
        for name in ("weight", "edge")
    )
    for block in blocks:
        for tile in tiles(block, row_number, column_number):
            places = np.repeat(at[tile.rows] - (np.cumsum(tile.counts) - tile.counts), tile.counts)
            places += np.arange(len(places))
            at[tile.rows] += tile.counts
            columns[places] = tile.columns
            if owners is not None:
                owner[places] = owners[block.indices.numpy()[tile.edges] + (block.first_column or 0)]
            for new, old in ((weight, block.weight), (edge, block.edge)):
                if new is not None and old is not None:
                    new[torch.from_numpy(places)] = old[torch.from_numpy(tile.edges)]
    return RemoteEdges(indptr, owner, columns, weight, edge)
