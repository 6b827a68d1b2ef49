"""Products of constant sparse features with a weight matrix, with dropout on the stored entries.

Wide bag-of-words features are never densified. X W gathers rows of W. The gradient X^T gy gathers rows of gy along the
transposed structure that was built at load, without scatters or atomics.
"""

from typing import Any

import torch

from hpcgnn import kernels
from hpcgnn.graph.sparse_rows import SparseRows


class _SparseProduct(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, weight: torch.Tensor, features: SparseRows, ids: torch.Tensor, key: int, p: float
    ) -> torch.Tensor:
        ctx.features, ctx.dropped = features, (ids, key, p)
        y = weight.new_empty(features.shape[0], weight.shape[1])
        kernels.gather(
            y, weight.contiguous(), features.indptr, features.indices, weight=_entries(features, *ctx.dropped)
        )
        return y

    @staticmethod
    def backward(ctx: Any, gy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        features = ctx.features
        data = _entries(features, *ctx.dropped)[features.t_entry]
        gweight = gy.new_empty(features.num_columns, gy.shape[1])
        kernels.gather(gweight, gy.contiguous(), features.t_indptr, features.t_indices, weight=data)
        return gweight, None, None, None, None


def _entries(features: SparseRows, ids: torch.Tensor, key: int, p: float) -> torch.Tensor:
    """The stored entries after dropout: (nnz,)."""
    if p == 0:
        return features.data
    out = torch.empty_like(features.data)
    kernels.dropout_entries(out, features.data, features.indptr, ids, features.indices, key, p)
    return out


def sparse_product(
    features: SparseRows, weight: torch.Tensor, ids: torch.Tensor, key: int = 0, p: float = 0.0
) -> torch.Tensor:
    """dropout_p(X) W: (n_p, d) from SparseRows X (n_p, F) and weight (F, d); gradient for the weight only.

    ids: int64 (n_p,) original node ids, which with `key` decide the mask, as in `dropout`.
    """
    return _SparseProduct.apply(weight, features, ids, key, p)
