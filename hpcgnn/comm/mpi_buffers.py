"""Tensors as MPI takes them: bytes of any type and number for messages, typed numbers for reductions."""

import functools
from typing import Any

import numpy as np
import torch
from mpi4py import MPI

_TYPES = {torch.float32: MPI.FLOAT, torch.float64: MPI.DOUBLE, torch.int64: MPI.INT64_T, torch.int32: MPI.INT32_T}
#: Libraries before MPI 4 count in 32 bits; a halo buffer of some GiB makes larger messages.
MOST_COUNT = 2**31 - 1


def as_bytes(tensor: torch.Tensor) -> Any:
    """The tensor's memory as an MPI buffer of bytes (bfloat16 and friends have no MPI type, and need none here)."""
    if not tensor.is_contiguous():
        raise ValueError(
            f"expected a contiguous tensor to send or receive, got strides {tensor.stride()} for {tuple(tensor.shape)}"
        )
    data = (tensor if tensor.dtype == torch.uint8 else tensor.detach().view(-1).view(torch.uint8)).numpy().reshape(-1)
    return [data, MPI.BYTE] if len(data) <= MOST_COUNT else [data, 1, _one_of(len(data), MOST_COUNT)]


@functools.cache
def _one_of(size: int, most: int) -> MPI.Datatype:
    """A type of which one element has so many bytes, made with counts of at most `most`. Kept: there are few sizes."""
    whole, rest = divmod(size, most)
    piece = MPI.BYTE.Create_contiguous(most)
    kind = MPI.Datatype.Create_struct([whole, rest], [0, whole * most], [piece, MPI.BYTE]).Commit()
    piece.Free()
    return kind


def as_numbers(tensor: torch.Tensor) -> tuple[np.ndarray, MPI.Datatype]:
    """The tensor's numbers as an MPI buffer of their type. Raises ValueError for types that are not reduced."""
    if not tensor.is_contiguous() or tensor.dtype not in _TYPES:
        raise ValueError(
            f"expected a contiguous tensor of {sorted(map(str, _TYPES))}, got {tensor.dtype} with strides "
            f"{tensor.stride()}"
        )
    return tensor.detach().view(-1).numpy(), _TYPES[tensor.dtype]
