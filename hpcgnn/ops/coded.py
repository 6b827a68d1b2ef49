"""The memory of a kept matrix as codes of 8 bits, rounded at random (kernels/coding.py)."""

import torch

from hpcgnn import kernels
from hpcgnn.memory.arena import Arena


class Coded:
    """The memory of a matrix, as the Kept of all its views have it.

    The codes may wait in the scratch file. `memory()` makes the matrix anew, at another place, and lets the codes go. A
    layer writes the gradient over it, so it takes no memory that the gradient would not.
    """

    def __init__(self, x: torch.Tensor, ids: torch.Tensor, key: int, exact: int, arena: Arena) -> None:
        """Code x (n, F), contiguous, but for its last `exact` columns. ids: int64 (n,); with key they determine the
        draws.
        """
        rows, width = len(x), x.shape[1] - exact
        codes = arena.empty(rows, width, dtype=torch.int8)
        steps = arena.empty(rows, -(-width // kernels.BLOCK))
        kernels.encode(codes, steps, x[:, :width], ids, key)
        parts = [codes, steps] if exact == 0 else [codes, steps, torch.empty(0)]
        if exact:
            parts[2] = arena.empty(rows, exact, dtype=x.dtype).copy_(x[:, width:])
        self._arena, self._like = arena, (x.shape, x.dtype)
        self._parts = [arena.keep(part) for part in parts]
        self._storage: torch.UntypedStorage | None = None

    def memory(self) -> torch.UntypedStorage:
        if self._storage is None:
            shape, dtype = self._like
            codes, steps, *rest = (part.tensor() for part in self._parts)
            out = self._arena.empty(*shape, dtype=dtype)
            kernels.decode(out[:, : codes.shape[1]], codes, steps)
            for exact in rest:
                out[:, codes.shape[1] :] = exact
            self._storage = out.untyped_storage()
            self._parts.clear()
        return self._storage
