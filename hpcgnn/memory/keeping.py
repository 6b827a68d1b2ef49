"""Tensors that are unused for a while, and who keeps them: in memory, unless a Keeper puts them elsewhere meanwhile."""

from collections.abc import Callable

import torch


class Kept:
    """A tensor for later. memory() returns its memory, the same one whenever it is called; None: it stays in memory."""

    def __init__(self, tensor: torch.Tensor, memory: Callable[[], torch.UntypedStorage] | None = None) -> None:
        self._tensor = tensor if memory is None else None
        self._memory = memory
        self._like = tensor.dtype, tensor.storage_offset(), tensor.shape, tensor.stride()

    def tensor(self) -> torch.Tensor:
        """It, in memory. While any tensor with the same memory is kept, all get the same memory back."""
        if self._memory is None:
            assert self._tensor is not None, "it stays in memory"
            return self._tensor
        dtype, offset, shape, stride = self._like
        return torch.empty(0, dtype=dtype).set_(self._memory(), offset, shape, stride)


class Keeper:
    """Keeps saved tensors in memory. A subclass may put them elsewhere, to stay within a number of bytes."""

    def keep(self, tensor: torch.Tensor) -> Kept:
        """A tensor, which nobody writes to until it is asked for."""
        return Kept(tensor)

    def note(self, taken: int) -> None:
        """taken: bytes in use of the arena, after each that it gives."""

    def gone(self, address: int) -> None:
        """Memory of the arena at this address is free again."""

    def make_room(self, size: int) -> bool:
        """Whether memory was freed because the arena may not grow by `size` bytes."""
        return False
