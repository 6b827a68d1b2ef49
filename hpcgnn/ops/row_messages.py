"""Messages that are a source's row with a map of the edge's features (GINE, PNA): kernels on the streams of the
general rule.

It does what `Propagation` does for such a message function. The same rows travel, and the same rows return. But a
block's edges are one call of a kernel, and nothing is kept for an edge. Saved are the rows, and of moments y with its
counts.
"""

from typing import Any

import torch

from hpcgnn import kernels
from hpcgnn.exchange.stream import Returns, Rows
from hpcgnn.kernels import RowMessages
from hpcgnn.ops.propagate import Propagation, Rule
from hpcgnn.ops.reducers import Std

#: What moments are, in the order of their columns.
MOMENTS = ("mean", "max", "min", "std")
#: (n, 2 F) how many messages are the largest and the least, (n,) how many there are.
Numbers = tuple[torch.Tensor, torch.Tensor]


class RowReduction:
    """The operator of a rank, on what a Propagation has. Collective in both directions."""

    def __init__(self, general: Propagation) -> None:
        self.general = general

    def __call__(self, rule: Rule, messages: RowMessages, x: torch.Tensor) -> torch.Tensor:
        """y (n_p, F), or of moments (n_p, 4 F), differentiably, from own rows x (n_p, F). rule: its message function is
        not called.
        """
        draw = kernels.stream_key(rule.seed, self.general.stream.comm.rank)  # as of Propagation
        return _Reduced.apply(self, messages, draw, x.contiguous(), messages.weight, messages.bias)

    def forward(self, messages: RowMessages, x: torch.Tensor, draw: int) -> tuple[torch.Tensor, Numbers | None]:
        """y, and of moments what their gradient needs."""
        n, width = x.shape
        y, numbers = x.new_zeros(n, messages.columns * width), None
        if messages.moments:
            numbers = x.new_zeros(n, 2 * width), torch.zeros(n, dtype=torch.int64)
            y[:, width : 2 * width], y[:, 2 * width : 3 * width] = -torch.inf, torch.inf
        for block, rows, _, _ in self.general.stream(Rows(x, draw=draw), "halo_forward"):
            kernels.message_forward(messages.at(block.edge), y, numbers, rows, block.indptr, block.indices, block.rows)
        if numbers is not None:
            empty = (numbers[1] == 0).unsqueeze(1)
            y[:, width : 3 * width].masked_fill_(empty, 0)
            spread = y[:, 3 * width :].div_(numbers[1].clamp(min=1).unsqueeze(1)).add_(Std.epsilon).sqrt_()
            spread.masked_fill_(empty, 0)
        return y, numbers

    def backward(
        self,
        messages: RowMessages,
        draw: int,
        gradient: torch.Tensor,
        saved: tuple[torch.Tensor, torch.Tensor],
        wanted: tuple[bool, bool],
    ) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Gradients of x, and of the edges' map (K + 1, F), if they are wanted. saved: x and y."""
        x, y = saved
        g_x = torch.zeros_like(x) if wanted[0] else None
        depth = 0 if messages.weight is None else len(messages.weight)
        g_map = x.new_zeros(depth + 1, x.shape[1]) if wanted[1] else None
        returns = None if g_x is None else Returns(g_x)
        for block, rows, _, back in self.general.stream(Rows(x, draw=draw), "halo_backward", returns):
            kernels.message_backward(
                messages.at(block.edge),
                (back, g_map),
                (y, gradient),
                rows,
                indptr=block.indptr,
                indices=block.indices,
                rows=block.rows,
                returns=block.returns,
            )
        return g_x, g_map


def _of_messages(gy: torch.Tensor, y: torch.Tensor, numbers: Numbers) -> torch.Tensor:
    """What gives moments' messages their gradient (kernels/messages.py), from the gradient of y (n, 4 F)."""
    counts, edges = numbers
    width = counts.shape[1] // 2
    count = edges.clamp(min=1).unsqueeze(1)
    out = torch.empty_like(y)
    torch.div(gy[:, :width], count, out=out[:, :width])
    torch.div(gy[:, width : 3 * width], counts.clamp(min=1), out=out[:, width : 3 * width])
    spread = out[:, 3 * width :]
    torch.mul(y[:, 3 * width :], count, out=spread)
    spread.masked_fill_((edges == 0).unsqueeze(1), torch.inf)
    torch.div(gy[:, 3 * width :], spread, out=spread)
    return out


class _Reduced(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        operator: RowReduction,
        messages: RowMessages,
        draw: int,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
    ) -> torch.Tensor:
        y, numbers = operator.forward(messages, x, draw)
        ctx.save_for_backward(x, y, weight, bias, *(numbers or ()))
        ctx.settings = operator, messages, draw
        return y

    @staticmethod
    def backward(ctx: Any, gy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        operator, messages, draw = ctx.settings
        x, y, weight, bias, *numbers = ctx.saved_tensors
        gradient = _of_messages(gy, y, (numbers[0], numbers[1])) if numbers else gy.contiguous()
        wanted = ctx.needs_input_grad[3], any(ctx.needs_input_grad[4:])
        g_x, g_map = operator.backward(messages, draw, gradient, (x, y), wanted)
        of_weight = None if g_map is None or weight is None else g_map[:-1]
        return None, None, None, g_x, of_weight, None if g_map is None or bias is None else g_map[-1]
