"""The communication memory of a rank: one piece of at most `halo_buffer` bytes, whatever the number of ranks.

Every stream carves it anew into two buffers to receive and two to send, and, where results go back to the owners of the
rows, as many narrow ones for those. Layers, directions and epochs share it, for no two streams are ever under way.
"""

import torch

from hpcgnn.graph.arena import Arena


class HaloBuffers:
    """limit: bytes for all buffers together. nbytes: what has been needed, and therefore allocated, so far.

    widest_row: bytes of the widest row that was asked about, with what returns for it. arena: the rank's other large memory,
    for the operators that work from these buffers.
    """

    def __init__(self, limit: int):
        self.limit, self.widest_row, self.arena = limit, 0, Arena()
        self._memory = torch.empty(0, dtype=torch.uint8)

    @property
    def nbytes(self):
        return self._memory.nbytes

    def cap(self, row_bytes: int, return_bytes: int = 0) -> int:
        """The most rows of a round: four buffers of rows of this size, and four of what returns for each, fit the limit."""
        self.widest_row = max(self.widest_row, row_bytes + return_bytes)
        return self.limit // (4 * (row_bytes + return_bytes))

    def lease(self, rows_in, rows_out, width, returned, dtype):
        """Carve the memory for one stream.

        rows_in, rows_out: the most rows that this rank receives and sends in a turn. width, returned: columns of the rows
        and of what goes back.
        """
        counts = [rows_in * width] * 2 + [rows_out * width] * 2 + [rows_in * returned] * 2 + [rows_out * returned] * 2
        needed = sum(counts) * dtype.itemsize
        assert needed <= self.limit, "a round is larger than the communication memory"
        if self._memory.nbytes < needed:
            self._memory = torch.empty(needed, dtype=torch.uint8)
        return Lease(*self._memory[:needed].view(dtype).split(counts), width, returned)


class Lease:
    """The buffers of one stream; those of even and of odd turns alternate. Each method gives a (rows, columns) view."""

    def __init__(self, *parts):
        *self._parts, self._width, self._returned = parts

    def _view(self, first, turn, rows, columns):
        return self._parts[first + turn % 2][: rows * columns].view(rows, columns)

    def receive(self, turn, rows):
        """Where the rows of others arrive."""
        return self._view(0, turn, rows, self._width)

    def send(self, turn, rows):
        """Where own rows are packed."""
        return self._view(2, turn, rows, self._width)

    def give_back(self, turn, rows):
        """Where results for the rows of others are summed before they go back."""
        return self._view(4, turn, rows, self._returned)

    def take_back(self, turn, rows):
        """Where results for own rows arrive."""
        return self._view(6, turn, rows, self._returned)
