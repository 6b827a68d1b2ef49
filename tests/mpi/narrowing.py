"""Narrowed rows by their definition: bytes, values, and the greatest distance of each number from its original."""

import numpy as np
import torch

DTYPES = "bf16", "int8"


def row_bytes(dtype, columns):
    """Bytes of a row of this number of narrowed columns, with its factors, in a row of float64."""
    return -(-(2 * columns if dtype == "bf16" else 4 + columns) // 8) * 8


def exact_in_int8(num_nodes, shape):
    """(projected (n, columns + 2 heads), gy (n, columns)), float64: features and gradients are whole numbers that int8
    has, with a scale of 1 for each row.
    """
    random = np.random.default_rng(3)
    projected = torch.from_numpy(random.standard_normal((num_nodes, shape.columns + 2 * shape.heads)))
    gy = torch.from_numpy(random.integers(-127, 128, (num_nodes, shape.columns))).double()
    projected[:, : shape.columns] = torch.from_numpy(random.integers(-127, 128, (num_nodes, shape.columns)))
    projected[:, 0], gy[:, 0] = 127, 127  # the scale of a row is then 1
    return projected, gy


def steps(x):
    """float64 (n, 1): the steps of the levels of each row x (n, F)."""
    return (np.abs(x).max(1, keepdims=True, initial=0) / 127).astype(np.float32).astype(float)


def narrowed(dtype, x, words):
    """float64 x (n, F) as it arrives. words: uint32 (n, F), the draws of random rounding."""
    if dtype == "bf16":
        return torch.from_numpy(x).to(torch.bfloat16).double().numpy()
    step = steps(x)
    return np.clip(np.floor(x / np.maximum(step, 1e-30) + (words >> 8) / 2.0**24), -127, 127) * step


def error_bound(dtype, exact):
    """(m, F) or (m, 1): how far numbers may be from exact (m, F) once they have travelled."""
    if exact.size == 0:
        return np.zeros((len(exact), 1))
    if dtype == "bf16":
        return np.abs(exact) * 2.0**-8  # rounded to the nearest
    return steps(exact) * (1 + 1e-6)
