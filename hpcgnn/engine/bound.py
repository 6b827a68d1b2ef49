"""The least seconds of an epoch: its products at the rate of the run's kernel, and the bytes that have to move at the
rate of a copy.

Each matrix of a layer is read or written once where it is needed, however many edges lead to a row:

    forwards     the input is read, the output is written
    backwards    the gradient of the output and the input are read, the gradient of the input is written

Nobody needs the gradient of the features. A layer that gathers also reads four bytes of each edge in both directions.
Scores of attention, norms, dropout, the loss, the optimizer, copies of rows, and messages do not count.
"""

import timeit
from typing import TYPE_CHECKING

import torch

from hpcgnn import kernels
from hpcgnn.graph.sparse_rows import SparseRows
from hpcgnn.nn.model import traits_of

if TYPE_CHECKING:
    from hpcgnn.engine.trainer import Trainer

# The matrix of weights of the measured product, and its rows for each thread: both stay in the cache of a core.
_WIDTH, _ROWS = 256, 768
# The most numbers of the measured copy, for each thread and four more: they are larger than the caches.
_COPIED = 1 << 21
_REPEAT = 5


def work_of_epoch(trainer: "Trainer") -> tuple[int, int]:
    """(multiplications, bytes that move), at least, of an epoch of one step on this rank."""
    views, model, whole = trainer.views, trainer.model, trainer.views.trained_on
    spec, features, multiplied, moved = model.spec, whole.features, 0, 0
    widths, rows = (spec.d_in, *model.widths, spec.classes), views.rows_computed(len(model.convs))
    for layer, conv in enumerate(model.convs):
        computed, first = rows[layer] if rows else whole.num_owned, layer == 0
        numbers = len(features.data) if first and isinstance(features, SparseRows) else computed * widths[layer]
        numbers *= 2 if first else 3
        multiplied += numbers * sum(each.numel() for each in conv.parameters() if each.dim() > 1) // widths[layer]
        moved += (spec.kept or spec.dtype).itemsize * (numbers + 2 * computed * widths[layer + 1])
        if traits_of(conv).neighbours != "none" and not (first and spec.keeps_input):
            share = views.shares[layer] if views.shares else None
            moved += 8 * (share or whole).inward.num_edges
    return multiplied, moved


def bound_of_epoch(trainer: "Trainer") -> dict[str, float] | None:
    """The least seconds of an epoch on this rank, its work, and the rates; None unless an epoch is one step with all
    rows. By all ranks at once: those of a node share its memory.
    """
    if not trainer.plan.schedule.exact_epochs:
        return None
    multiplied, moved = work_of_epoch(trainer)
    model, threads = trainer.model, torch.get_num_threads()
    x = torch.ones(_ROWS * threads, _WIDTH, dtype=model.spec.dtype)
    weight, out = torch.ones_like(x[:_WIDTH]), torch.empty_like(x)
    # As large as a layer's output, for which the arena has memory: what fits a cache does so in an epoch, too.
    output = max(1, trainer.views.trained_on.num_owned) * max((*model.widths, model.spec.classes))
    source, target = (trainer.buffers.arena.empty(min(output, _COPIED * (4 + threads))).fill_(1) for _ in range(2))
    work = lambda: kernels.multiply(out, x, weight), lambda: target.copy_(source)
    products, copy = (min(timeit.repeat(each, number=1, repeat=_REPEAT)) for each in work)
    multiplies, moves = x.numel() * _WIDTH / products, 2 * source.nbytes / copy
    return {
        "seconds": multiplied / multiplies + moved / moves,
        "multiplications": multiplied,
        "moved_bytes": moved,
        "multiplications_per_second": multiplies,
        "moved_bytes_per_second": moves,
    }
