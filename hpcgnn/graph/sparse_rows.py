"""Sparse features of a rank's own nodes, and their transpose."""

from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class SparseRows:
    """Constant sparse features of the own nodes and their transpose, both as CSR, so that products need no scatter.

    Attributes:
        indptr, indices, data: int64 (n_p + 1,), int32 (nnz,), (nnz,).
        t_indptr, t_indices: int64 (F + 1,), int32 (nnz,) own rows.
        t_entry: int64 (nnz,), the number in `data` of each transposed entry.
    """

    indptr: torch.Tensor
    indices: torch.Tensor
    data: torch.Tensor
    t_indptr: torch.Tensor
    t_indices: torch.Tensor
    t_entry: torch.Tensor
    num_columns: int

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.indptr) - 1, self.num_columns


def sparse_rows(
    indptr: np.ndarray, columns: np.ndarray, data: np.ndarray, num_columns: int, dtype: torch.dtype
) -> SparseRows:
    """SparseRows from CSR arrays: indptr int64 (n_p + 1,), columns int32 (nnz,), data float (nnz,)."""
    order = np.argsort(columns, kind="stable")
    t_indptr = np.zeros(num_columns + 1, np.int64)
    np.cumsum(np.bincount(columns, minlength=num_columns), out=t_indptr[1:])
    rows = np.repeat(np.arange(len(indptr) - 1, dtype=np.int32), np.diff(indptr))
    return SparseRows(
        torch.from_numpy(indptr),
        torch.from_numpy(columns),
        torch.from_numpy(data).to(dtype),
        torch.from_numpy(t_indptr),
        torch.from_numpy(rows[order]),
        torch.from_numpy(order),
        num_columns,
    )
