"""Some rows at a time in the type that is computed with, of a matrix that may be kept in a narrower one."""

import torch

# Rows that are worked on at a time: they stay in the cache from one step to the next, and a product of so many rows still
# runs at full speed.
TILE_ROWS = 2048


def row_tiles(num_rows):
    """Slices of TILE_ROWS rows that cover `num_rows`."""
    return [slice(first, min(first + TILE_ROWS, num_rows)) for first in range(0, num_rows, TILE_ROWS)]


def sum_type(dtype):
    """The type in which sums of numbers of a type are made: float32 for bfloat16, else the type itself."""
    return torch.promote_types(dtype, torch.float32)


class Room:
    """Reads and writes rows of matrices like x (n, F). dtype: to compute with. Where that is x's, nothing is ever copied."""

    def __init__(self, arena, x, dtype):
        self._memory = None if x.dtype == dtype else arena.empty(min(TILE_ROWS, len(x)), x.shape[1], dtype=dtype)

    def read(self, part):
        """The rows `part` (at most TILE_ROWS) to compute with; a copy is valid until the next use of this room."""
        return part if self._memory is None else self._memory[: len(part)].copy_(part)

    def write(self, part, compute):
        """Let compute(out) make the rows `part` (at most TILE_ROWS)."""
        if self._memory is None:
            compute(part)
        else:
            out = self._memory[: len(part)]
            compute(out)
            part.copy_(out)

    def store(self, part, result):
        """Copy a result to the rows `part`, which it otherwise is already."""
        if self._memory is not None:
            part.copy_(result)
