"""What stands between two layers, ReLU and dropout, where one owns the memory: in place, some rows at a time.

The gradient needs nothing but the result: where that is zero, the unit was off or dropped, and the gradient is zero; elsewhere
it is scaled as the value was. So neither the input nor the mask is kept, and nothing is drawn twice.
"""

from dataclasses import dataclass

import torch

from hpcgnn import kernels
from hpcgnn.ops.dropout import dropout


@dataclass(frozen=True)
class ReluDropout:
    """dropout_p(relu(x)). ids: int64 (n_p,) original node ids; key: of the stream of draws; p = 0 drops nothing."""

    ids: torch.Tensor
    key: int
    p: float

    def __call__(self, x):
        """The same as a step of its own, differentiable; x is overwritten."""
        return dropout(torch.relu_(x), self.ids, self.key, self.p)

    def apply_(self, x, rows):
        """x (rows, F) in place; rows: the slice of the own rows that x holds."""
        x.clamp_min_(0)
        if self.p:
            kernels.dropout(x, x, self.ids[rows], self.key, self.p)

    def gradient(self, gy, y, out):
        """out = the gradient of the input from that of the result y, (rows, F) each; out may be y itself. Changes gy."""
        if self.p:
            gy.mul_(kernels.kept_scale(self.p))
        torch.ops.aten.threshold_backward.grad_input(gy, y, 0, grad_input=out)
