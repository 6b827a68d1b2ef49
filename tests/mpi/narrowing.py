"""Narrowed rows by their definition: bytes, values, and how far each number may be from what it was."""

import numpy as np
import torch

HALVES = {"bf16": torch.bfloat16}
BITS = {"int4": 4, "int2": 2}
DTYPES = (*HALVES, "int8", *BITS)
# Of a number rounded to the nearest, in parts of it.
ROUNDED = {"bf16": 2.0**-8}


def row_bytes(dtype, columns):
    """Bytes of a row of so many narrowed columns, with its factors."""
    if dtype in HALVES:
        return 2 * columns
    return 4 + (columns if dtype == "int8" else -(-columns * BITS[dtype] // 8))


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


def bfloat(x, up):
    """float64: the bfloat16 next to x (…,) that is not above it (up -1), or not below it (up 1)."""
    bits = x.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    near = [(bits + np.uint32(step)).view(np.float32).astype(float) for step in (0, 1 << 16)]
    near.append(np.where(bits & np.uint32(0x7FFFFFFF), (bits - np.uint32(1 << 16)).view(np.float32), 0.0).astype(float))
    far = np.where(up * np.array(near) >= up * x, np.array(near), up * np.inf)
    return far.min(0) if up > 0 else far.max(0)


def factors(dtype, x):
    """(least, step) (n, 1) of the levels of each row x (n, F)."""
    if dtype == "int8":
        return 0.0, (np.abs(x).max(1, keepdims=True, initial=0) / 127).astype(np.float32).astype(float)
    least = bfloat(x.min(1, keepdims=True), -1)
    return least, bfloat((x.max(1, keepdims=True) - least) / (2 ** BITS[dtype] - 1), 1)


def narrowed(dtype, x, words):
    """float64 x (n, F) as it arrives. words: uint32 (n, F), the draws of what is rounded at random."""
    if dtype in HALVES:
        return torch.from_numpy(x).to(HALVES[dtype]).double().numpy()
    least, step = factors(dtype, x)
    low, high = (-127, 127) if dtype == "int8" else (0, 2 ** BITS[dtype] - 1)
    level = np.floor((x - least) / np.maximum(step, 1e-30) + (words >> 8) / 2.0**24)
    return np.clip(level, low, high) * step + least


def error_bound(dtype, exact):
    """(m, F) or (m, 1): how far numbers may be from exact (m, F) once they have travelled."""
    if exact.size == 0:
        return np.zeros((len(exact), 1))
    if dtype in HALVES:
        return np.abs(exact) * ROUNDED[dtype]
    return factors(dtype, exact)[1] * (1 + 1e-6)
