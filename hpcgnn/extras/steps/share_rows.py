"""Which rows each layer computes in the step of a share (shares.py).

A share computes the rows that a whole pass would (graph/transforms/pruning.py). In the last layer these are its
training nodes. Before that they are its rows that training nodes of any share depend on. Rows of a history that nobody
reads are never made.

It may also compute some rows of other shares anew. These have most edges to the rows that the next layer computes.
Then the edges have fresh rows, and gradients. The draws of ties depend on nodes alone, and so does the choice.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch

from hpcgnn import kernels
from hpcgnn.comm.communicator import Communicator
from hpcgnn.graph.local import LocalGraph
from hpcgnn.graph.transforms.pruning import edges_to
from hpcgnn.ops.draws import Purpose, Randomness


class Draws(NamedTuple):
    """Draws of ties. ids: int64 (n_p,), original ids of own nodes."""

    random: Randomness
    ids: torch.Tensor
    comm: Communicator


#: int64 (n_p,): edges from each row to nodes in a set, bool (n_p,) on every rank. Collective.
EdgesTo = Callable[[torch.Tensor], torch.Tensor]


def edges_of_rank(local: LocalGraph, comm: Communicator) -> EdgesTo:
    """The edges of own nodes."""
    return functools.partial(edges_to, local, comm=comm)


def rows_of_layers(train: torch.Tensor, layers: int, prunable: int, edges: EdgesTo) -> list[torch.Tensor]:
    """[bool (n_p,)]: own rows of the features, and of the output of each layer, that the loss depends on. Collective.

    train: bool (n_p,); prunable: number of the last layers that may compute some of their rows alone; the others
    compute all.
    """
    found = [train if prunable else torch.ones_like(train)]
    for layer in reversed(range(layers)):
        if layer == 0 or layers - layer < prunable:
            found.append(found[-1] | (edges(found[-1]) > 0))
        else:
            found.append(torch.ones_like(found[-1]))
    return found[::-1]


def rows_of_shares(
    share: torch.Tensor,
    reach: list[torch.Tensor],
    prunable: int,
    edges: EdgesTo,
    draws: Draws,
    count: int,
    extra: float,
) -> list[list[torch.Tensor]]:
    """[of the features and each layer: [int64, increasing: the own rows of each share]]. Collective.

    share: int64 (n_p,), below `count`; reach: of `rows_of_layers`; extra: rows of other shares that a share computes,
    as a part of its own.
    """
    found: list[list[torch.Tensor]] = [[] for _ in reach]
    for number in range(count):
        mine = share == number
        rows = reach[-1] & mine
        found[-1].append(torch.nonzero(rows).squeeze(1))
        for layer in reversed(range(len(reach) - 1)):
            read, rows = rows, (reach[layer] & mine) | rows
            if extra and len(reach) - 1 - layer <= prunable:
                most = extra * float(draws.comm.total(rows.sum().view(1), "plan"))
                rows = rows | _nearest(edges(read), rows, most, layer, draws)
            found[layer].append(torch.nonzero(rows).squeeze(1))
    return found


def _nearest(counts: torch.Tensor, left_out: torch.Tensor, most: float, layer: int, draws: Draws) -> torch.Tensor:
    """bool (n_p,): about `most` own rows, over all ranks, the ones with most edges. Collective.

    Args:
        counts: int64 (n_p,), edges of each row to rows of the step. It is scratch afterwards.
        left_out: bool (n_p,).
        layer: of the draws of ties.
    """
    counts[left_out], comm = 0, draws.comm
    largest = int(comm.allreduce_(counts.max().view(1) if len(counts) else torch.zeros(1).long(), "plan", "max"))
    of_count = comm.total(torch.bincount(counts, minlength=largest + 1), "plan")
    above = torch.cumsum(of_count.flip(0), 0).flip(0)  # rows with so many edges or more
    fits = torch.nonzero(above[1:] <= most)
    least = 1 + int(fits[0]) if len(fits) else largest + 1
    chosen = counts >= least
    if least > 1:
        left = (most - float(above[least] if least <= largest else 0)) / float(of_count[least - 1])
        words = kernels.random_words(draws.random.key(Purpose.SHARE, 1 + layer), draws.ids, 1)[:, 0]
        chosen |= (counts == least - 1) & (words < left * 2**32)
    return chosen
