"""Checks of the public functions: whatever reaches compiled code as a pointer has the dtype, shape and layout that it
is read with.

All of them look at a tensor's description only, so they cost microseconds whatever its size. Ranges of indices are
the one thing left out; `check_block` looks at those, once per block.
"""

from collections.abc import Collection

import torch

FLOATS = (torch.float32, torch.float64, torch.bfloat16)
#: Of rows that are only read: float32 has all numbers of the others, and they are widened in registers.
READ = (*FLOATS, torch.float16, torch.int8)


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which elements of `dtype` are summed: float64 for itself, else float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def on_cpu(name: str, tensor: object) -> torch.Tensor:
    """`tensor` is one, and in this machine's memory; returns it."""
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"{name}: expected a torch tensor, got {type(tensor).__name__}")
    if not tensor.is_cpu:
        raise ValueError(f"{name}: expected a tensor on the CPU, got one on {tensor.device}")
    return tensor


def matrix(
    name: str,
    tensor: torch.Tensor | None,
    dtypes: Collection[torch.dtype],
    rows: int | None = None,
    columns: int | None = None,
) -> None:
    """`tensor` is (rows, columns), its dtype one of `dtypes`, each row contiguous; rows may be any distance apart."""
    tensor = on_cpu(name, tensor)
    if tensor.dtype not in dtypes:
        expected = " or ".join(str(dtype) for dtype in dtypes)
        raise ValueError(f"{name}: expected {expected}, got {tensor.dtype}")
    shape = tensor.shape
    if len(shape) != 2 or (rows is not None and shape[0] != rows) or (columns is not None and shape[1] != columns):
        wanted = ("n" if rows is None else str(rows), "F" if columns is None else str(columns))
        raise ValueError(f"{name}: expected shape ({', '.join(wanted)}), got {tuple(shape)}")
    # An empty tensor may have any strides: .contiguous() leaves them as they are, and nothing is read through them.
    down, across = tensor.stride()
    if ((shape[1] > 1 and across != 1) or (shape[0] > 1 and down < shape[1])) and tensor.numel():
        raise ValueError(
            f"{name}: expected rows that are contiguous and do not overlap (strides (>= {shape[1]}, 1)), "
            f"got strides {tensor.stride()}; call .contiguous()"
        )


def weights(weight: torch.Tensor, x: torch.Tensor, columns: int) -> None:
    """`weight` is of x's dtype, or of float32 where that is bfloat16; (columns of x, columns), of any strides."""
    on_cpu("weight", weight)
    kept_narrow = x.dtype == torch.bfloat16 and weight.dtype == torch.float32
    if (weight.dtype != x.dtype and not kept_narrow) or tuple(weight.shape) != (x.shape[1], columns):
        wanted = f"{x.dtype} of shape {(x.shape[1], columns)}"
        raise ValueError(f"weight: expected {wanted}, got {weight.dtype} of shape {tuple(weight.shape)}")


def heads(name: str, tensor: torch.Tensor, x: torch.Tensor) -> None:
    """`tensor` has a row for each row of x, and as many columns, at least one, as divide x's."""
    matrix(name, tensor, (x.dtype,), rows=x.shape[0])
    if tensor.shape[1] < 1 or x.shape[1] % tensor.shape[1]:
        raise ValueError(f"{name}: expected as many columns as divide {x.shape[1]}, got {tensor.shape[1]}")


def vector(
    name: str, tensor: torch.Tensor | None, dtype: torch.dtype, length: int | None, optional: bool = False
) -> None:
    """`tensor` is contiguous, 1-D, of `dtype` and `length` (None: any)."""
    if tensor is None and optional:
        return
    tensor = on_cpu(name, tensor)
    if tensor.dtype != dtype:
        raise ValueError(f"{name}: expected {dtype}, got {tensor.dtype}")
    if tensor.dim() != 1 or (length is not None and tensor.shape[0] != length):
        raise ValueError(f"{name}: expected shape ({'n' if length is None else length},), got {tuple(tensor.shape)}")
    if not tensor.is_contiguous():
        raise ValueError(f"{name}: expected a contiguous tensor, got stride {tensor.stride()}; call .contiguous()")


def row_pointer(indptr: torch.Tensor) -> int:
    """`indptr` is int64 (n + 1,); returns n."""
    vector("indptr", indptr, torch.int64, None)
    if indptr.numel() == 0:
        raise ValueError("indptr: expected shape (rows + 1,), got (0,)")
    return indptr.numel() - 1


def written(tensor: torch.Tensor) -> None:
    """Marks `tensor` as written for autograd, so that a stale saved tensor is an error, not a wrong gradient."""
    if not tensor.is_inference():
        torch.autograd.graph.increment_version(tensor)
