"""Tensors as MPI takes them: bytes of any type and number for messages, typed numbers for reductions."""

import functools
from typing import Any

import torch
from mpi4py import MPI

from hpcgnn.comm.transport import bytes_of, numbers_of

_TYPES = {torch.float32: MPI.FLOAT, torch.float64: MPI.DOUBLE, torch.int64: MPI.INT64_T, torch.int32: MPI.INT32_T}

#: Libraries before MPI 4 count in 32 bits; a halo buffer of some GiB makes larger messages.
MOST_COUNT = 2**31 - 1


def as_bytes(tensor: torch.Tensor) -> Any:
    """The tensor's memory as an MPI buffer of bytes."""
    data = bytes_of(tensor).numpy()
    return [data, MPI.BYTE] if len(data) <= MOST_COUNT else [data, 1, _one_of(len(data), MOST_COUNT)]


@functools.cache
def _one_of(size: int, most: int) -> MPI.Datatype:
    """Return a cached type with elements of `size` bytes, made with counts of at most `most`. There are few sizes."""
    whole, rest = divmod(size, most)
    piece = MPI.BYTE.Create_contiguous(most)
    kind = MPI.Datatype.Create_struct([whole, rest], [0, whole * most], [piece, MPI.BYTE]).Commit()
    piece.Free()
    return kind


def as_numbers(tensor: torch.Tensor) -> Any:
    """The tensor's numbers as an MPI buffer of their type. Raises ValueError for types that are not reduced."""
    return [numbers_of(tensor).numpy(), _TYPES[tensor.dtype]]
