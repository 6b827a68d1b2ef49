"""Random numbers that depend on their purpose and place, never on the rank or the time; and dropout by them.

A draw is a pure function of (seed, epoch, layer, purpose, original node id, column): Philox4x32-10, a counter-based
generator (Salmon et al., SC'11). Masks are recomputed rather than stored. Two ranks know the same sample without
messages. The training curve does not depend on the number of ranks or on the partition.

The activation before dropout is here too: between two layers, in memory that the caller owns, some rows at a time. ReLU
is done in place. Its gradient needs only the result. Where that is zero, the unit was off or dropped, and the gradient
is zero. Elsewhere it is scaled like the value. So neither the input nor the mask is kept, and nothing is drawn twice.
ELU is computed again for the gradient, with its mask: attention needs its own output, which is ELU's input.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, cast

import torch

from hpcgnn import kernels
from hpcgnn.memory.arena import recycled
from hpcgnn.ops.row_tiles import in_rows


class Purpose(IntEnum):
    """The purpose of a stream of draws. The values are part of a seed's meaning: append, never renumber."""

    PARAMETER = 1
    DROPOUT = 2
    DROPOUT_AGGREGATE = 3
    DROPOUT_ATTENTION = 4
    MESSAGE = 5
    ROUNDING = 6
    BOUNDARY = 7
    LEARNED_FEATURE = 8
    LINK_SPLIT = 9
    LINK_POOL = 10
    LINK_NEGATIVE = 11
    LINK_CANDIDATE = 12
    REUSED_LABEL = 13
    DROPPED_EDGE = 14
    SHARE = 15
    SHARE_ORDER = 16
    KEPT = 17
    LABEL_FOLD = 18
    HISTORY = 19
    NOISE = 20


class Randomness:
    """All draws of a run. seed: any int. epoch: set by the training loop before each step."""

    def __init__(self, seed: int) -> None:
        self.seed, self.epoch = seed, 0

    def key(self, purpose: Purpose, layer: int) -> int:
        """The 64-bit key of one stream of draws in the present epoch."""
        return kernels.stream_key(self.seed, self.epoch, layer, int(purpose))

    def uniform(self, shape: Sequence[int], index: int) -> torch.Tensor:
        """Numbers in [0, 1) for the initial value of parameter number `index`: float64 tensor, always the same."""
        key = kernels.stream_key(self.seed, 0, index, int(Purpose.PARAMETER))
        words = kernels.random_words(key, torch.arange(shape[0]), shape[1])
        return words.to(torch.float64) / 2.0**32


@contextlib.contextmanager
def torch_seed(seed: int) -> Iterator[None]:
    """Seed torch's own generator while the body runs, for layers that start as torch has them.

    The draws are the same on all ranks. The body sends nothing, since the generator belongs to the process.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed takes ms to tell all devices
        yield


@dataclass(frozen=True)
class Drop:
    """Dropout of some rows of a matrix at a time, without a gradient.

    Attributes:
        ids: int64 (n,), original node ids.
        key: of the stream of draws.
        p: the rate.
        share: share(dtype): (n,) of a dtype, 1 / √ of how many rows a row is the mean, or another sum. Then a row
            becomes x + (dropout_p(x) - x) · share. Dropout of alike rows gives their mean about this deviation. Draws
            are independent. None: a row is dropped as it is.
    """

    ids: torch.Tensor
    key: int
    p: float
    share: Callable[[torch.dtype], torch.Tensor] | None = None

    def __call__(self, x: torch.Tensor, rows: slice, out: torch.Tensor, index: torch.Tensor | None = None) -> None:
        """Write what dropout leaves of the rows `rows` to `out`. x: these rows, or those that `index` int32 picks of
        it; narrower than `out` if that is float32.
        """
        ids, key, p, share = self.mask(rows, out.dtype)
        kernels.dropout(out, x, ids, key, p, index, share)

    def mask(self, rows: slice, dtype: torch.dtype) -> kernels.Mask:
        """The same on the way into a product of rows that are `dtype` then."""
        share = None if self.share is None else self.share(dtype)[rows]
        return kernels.Mask(self.ids[rows], self.key, self.p, share)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, ids: torch.Tensor, key: int, p: float) -> torch.Tensor:
        ctx.ids, ctx.key, ctx.p = ids, key, p
        return _apply(x, ids, key, p)

    @staticmethod
    def backward(ctx: Any, gy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return _apply(gy, ctx.ids, ctx.key, ctx.p), None, None, None


def _apply(x: torch.Tensor, ids: torch.Tensor, key: int, p: float) -> torch.Tensor:
    x = x.contiguous()
    out = recycled(*x.shape, dtype=x.dtype)
    kernels.dropout(out, x, ids, key, p)
    return out


def dropout(x: torch.Tensor, ids: torch.Tensor, key: int, p: float) -> torch.Tensor:
    """x (n, F) with elements zeroed with probability p and the others scaled by 1/(1-p).

    ids: int64 (n,) original node ids; key: of the stream of draws. The identity for p = 0.
    """
    return x if p == 0 else _Dropout.apply(x, ids, key, p)


@dataclass(frozen=True)
class _Activation:
    """ids: int64 (n_p,) original node ids; key: of the stream of draws; p = 0 drops nothing. done: whether rows come
    with it already, and only its gradient is left.
    """

    ids: torch.Tensor
    key: int
    p: float
    done: bool = False


class _Done(torch.autograd.Function):
    """The gradient of an activation that is done."""

    @staticmethod
    def forward(ctx: Any, y: torch.Tensor, activation: "ReluDropout") -> torch.Tensor:
        ctx.activation = activation
        ctx.save_for_backward(y)
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, gy: torch.Tensor) -> tuple[torch.Tensor, None]:
        (y,) = ctx.saved_tensors
        out = recycled(*y.shape, dtype=y.dtype)
        ctx.activation.gradient(in_rows(gy.to(kernels.accumulation_dtype(y.dtype))), y, out)
        return out, None


class ReluDropout(_Activation):
    """dropout_p(relu(x))."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The same as a step of its own, differentiable; x is overwritten."""
        if self.done:
            return cast(torch.Tensor, _Done.apply(x, self))
        return dropout(torch.relu_(x), self.ids, self.key, self.p)

    def apply_(self, x: torch.Tensor, rows: slice) -> None:
        """x (rows, F) in place; rows: the slice of the own rows that x holds."""
        if self.done:
            return
        if self.p:
            kernels.dropout(x, x, self.ids[rows], self.key, self.p, relu=True)
        else:
            x.clamp_min_(0)

    def gradient(self, gy: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> None:
        """out = the gradient of the input from the gradient of the result y, (rows, F) each; out may be y itself."""
        kernels.relu_gradient(out, gy, y, self.scale)

    @property
    def scale(self) -> float:
        """The factor of the gradient where the result is not zero."""
        return kernels.kept_scale(self.p)


class _Elu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(x)
        ctx.save_for_backward(torch.nn.functional.elu(x, inplace=True))
        return x

    @staticmethod
    def backward(ctx: Any, gy: torch.Tensor) -> torch.Tensor:
        (y,) = ctx.saved_tensors
        out = recycled(*y.shape, dtype=y.dtype)
        kernels.elu_gradient(out, in_rows(gy), y)
        return out


def elu_(x: torch.Tensor) -> torch.Tensor:
    """elu(x) in the place of x (n, F), differentiably; the gradient is of the arena."""
    rows = x.dim() == 2 and x.is_contiguous() and x.dtype in (torch.float32, torch.float64)
    return cast(torch.Tensor, _Elu.apply(x)) if rows else torch.nn.functional.elu(x, inplace=True)


class EluDropout(_Activation):
    """dropout_p(elu(x)), on the way into a product (see attention_layer.py)."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The same as a step of its own, differentiable; x is overwritten."""
        return dropout(elu_(x), self.ids, self.key, self.p)

    def of(self, rows: slice) -> kernels.Elu:
        """The action of kernels.project on some of the own rows, a slice."""
        return kernels.Elu(self.ids[rows], self.key, self.p)
