"""The activation and dropout between two layers, in memory that the caller owns, some rows at a time.

ReLU is done in place. Its gradient needs only the result. Where that is zero, the unit was off or dropped, and the
gradient is zero. Elsewhere it is scaled like the value. So neither the input nor the mask is kept, and nothing is
drawn twice. ELU is computed again for the gradient, with its mask: attention needs its own output, which is ELU's
input.
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

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The same as a step of its own, differentiable; x is overwritten."""
        return dropout(torch.relu_(x), self.ids, self.key, self.p)

    def apply_(self, x: torch.Tensor, rows: slice) -> None:
        """x (rows, F) in place; rows: the slice of the own rows that x holds."""
        x.clamp_min_(0)
        if self.p:
            kernels.dropout(x, x, self.ids[rows], self.key, self.p)

    def gradient(self, gy: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> None:
        """out = the gradient of the input from the gradient of the result y, (rows, F) each; out may be y itself."""
        kernels.relu_gradient(out, gy, y, self.scale)

    @property
    def scale(self) -> float:
        """The factor of the gradient where the result is not zero."""
        return kernels.kept_scale(self.p)


@dataclass(frozen=True)
class EluDropout:
    """dropout_p(elu(x)), on the way into a product (see attention_projection.py)."""

    ids: torch.Tensor
    key: int
    p: float

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The same as a step of its own, differentiable; x is overwritten."""
        return dropout(torch.nn.functional.elu(x, inplace=True), self.ids, self.key, self.p)

    def of(self, rows: slice) -> kernels.Elu:
        """The action of kernels.project on some of the own rows, a slice."""
        return kernels.Elu(self.ids[rows], self.key, self.p)
