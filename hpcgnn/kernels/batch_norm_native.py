"""The compiled kernels of batch normalisation (native/norm.c)."""

from typing import Any

import torch
from torch import Tensor

from .interface import SUMMED_ROWS, SUMMED_SHARES, pointer, rows_of


class NativeBatchNorm:
    """Kernels of `batch_norm.py`, compiled."""

    _library: Any

    def _how(self, *dtype: torch.dtype) -> tuple[int, ...]:
        raise NotImplementedError

    def column_sums(self, sums: Tensor, x: Tensor, mean: Tensor | None) -> None:
        partial = _partial(x, sums)  # a name holds it until the call is over
        given = pointer(sums), *rows_of(x), pointer(mean), pointer(partial)
        self._library.hg_column_sums(*self._how(x.dtype), *given, *x.shape)

    def norm_gradient_sums(self, sums: Tensor, gy: Tensor, x: Tensor, mean: Tensor, inverse: Tensor) -> None:
        partial = _partial(x, sums)
        given = pointer(sums), *rows_of(gy), *rows_of(x), pointer(mean), pointer(inverse), pointer(partial)
        self._library.hg_norm_gradient_sums(*self._how(x.dtype), *given, *x.shape)

    def norm_columns(self, y: Tensor, x: Tensor, mean: Tensor, inverse: Tensor, weight: Tensor, bias: Tensor) -> None:
        given = *rows_of(y), *rows_of(x), *map(pointer, (mean, inverse, weight, bias))
        self._library.hg_norm_columns(*self._how(x.dtype), *given, *x.shape)

    def norm_columns_gradient(
        self,
        gx: Tensor,
        gy: Tensor,
        x: Tensor,
        mean: Tensor,
        inverse: Tensor,
        mean_gy: Tensor,
        mean_product: Tensor,
        factor: Tensor,
    ) -> None:
        vectors = map(pointer, (mean, inverse, mean_gy, mean_product, factor))
        given = *rows_of(gx), *rows_of(gy), *rows_of(x), *vectors
        self._library.hg_norm_columns_gradient(*self._how(x.dtype), *given, *x.shape)


def _partial(x: Tensor, sums: Tensor) -> Tensor:
    """Zeros for the sums of the shares that are made at a time."""
    shares = min(SUMMED_SHARES, -(-x.shape[0] // SUMMED_ROWS))
    return torch.zeros(shares, sums.shape[0], dtype=torch.float64)
