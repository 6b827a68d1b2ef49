"""Memory that the system allocates anew in each epoch: large tensors of torch's operations outside of the arena.

It returns to the system when they are freed (plugins/memory_profile.py). The allocations of a small copy are no guide:
its tensors are small, and the heap mostly has room for them. So the trial watches tensors as they are made, and counts
those that would be large on a rank of full size.
"""

import mmap
from typing import Any

import torch

from hpcgnn.plugins.live_tensors import new_storages
from hpcgnn.plugins.memory_profile import MMAP_THRESHOLD

# Bytes of tiles of edges, which do not grow with the rank.
_EDGE_TILE_BYTES = 1 << 21


class Fresh:
    """Observes torch's operations.

    Attributes:
        pages: counted pages.
        factor: size of the copy as a part of the rank.
        nodes: nodes of the copy.
        tile, whole_tile: rows per tile, in the copy and on the rank.
    """

    def __init__(self, nodes: int, factor: float = 1.0, tile: int = 1, whole_tile: int = 1) -> None:
        self.pages = 0.0
        self._nodes, self._factor, self._tile, self._whole_tile = max(1, nodes), factor, tile, whole_tile

    def look(self, given: Any, made: Any) -> None:
        """An operation has made this from that: tensors, in tuples, lists and dictionaries."""
        for tensor, storage in new_storages(given, made):
            if self._grown(tensor, storage.nbytes()) >= MMAP_THRESHOLD:
                self.pages += storage.nbytes() / mmap.PAGESIZE

    def _grown(self, tensor: torch.Tensor, nbytes: int) -> float:
        """Its bytes on a rank of full size."""
        rows = tensor.shape[0] if tensor.ndim else 1
        if rows >= self._nodes or (rows > self._tile and nbytes > _EDGE_TILE_BYTES):
            return nbytes / self._factor
        return nbytes * self._whole_tile / self._tile if rows == self._tile else nbytes
