"""The communication memory of a rank: at most `halo_buffer` bytes, whatever the number of ranks.

For each form of rows it is cut into two buffers to receive and one to send. If results return to the owners of the
rows, there are two narrow ones for each way. If rows travel narrowed, the memory for widening them is part of it.
Layers, directions and epochs share it, since no two streams are ever under way. Rows for a node of several ranks lie in
memory that they share; the limit then holds for all of them together.

The next turn is packed into the buffer of a turn that was on its way during the computing of the turn before. So a
second buffer to send from would rarely save a wait. It would make turns a quarter shorter, with more passes over the
rows that turns add to.
"""

import weakref
from collections.abc import Sequence
from typing import Any

import torch

from hpcgnn.exchange.peers import Peers
from hpcgnn.memory.arena import Arena


class HaloBuffers:
    """The communication buffers of a rank.

    Attributes:
        limit: bytes for all buffers together.
        nbytes: bytes allocated so far, on need.
        widest_row: bytes of the widest declared row, with a third of the bytes for returning and widening it.
        arena: the rank's other large memory, for the operators that work from these buffers.
        streams: {living stream: what it has cut from the memory}, see `cuts`.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.widest_row, self.arena = limit, 0, Arena().serve()
        self._memory, self._ranks = torch.empty(0, dtype=torch.uint8), 1
        self.streams: weakref.WeakKeyDictionary[object, dict[Any, Any]] = weakref.WeakKeyDictionary()

    @property
    def nbytes(self) -> int:
        return self._memory.nbytes // self._ranks

    def declare(self, row_bytes: int, return_bytes: int = 0, summed_bytes: int = 0, widened_bytes: int = 0) -> None:
        """Say how much one row takes that a stream is going to exchange; see `cap`."""
        beside = 4 * return_bytes + summed_bytes + widened_bytes
        self.widest_row = max(self.widest_row, row_bytes + -(-beside // 3))

    def cap(
        self,
        row_bytes: int,
        return_bytes: int = 0,
        summed_bytes: int = 0,
        widened_bytes: int = 0,
        rows: int = 0,
        ranks: int = 1,
    ) -> int:
        """The most rows of a turn: three buffers of rows of this size, and four of their returns, fit the limit.

        Args:
            summed_bytes: per row of a turn, if results are summed before they are narrowed.
            widened_bytes: per row of a round; no round has more than `rows`.
            ranks: ranks of a node that has the rows together. Each of them adds returns and widens rows in memory of
                its own.
        """
        given = (2 if summed_bytes else 2 * ranks) * return_bytes
        each = 3 * row_bytes + given + 2 * return_bytes + ranks * summed_bytes
        return max(0, ranks * (self.limit - widened_bytes * rows)) // max(1, each)

    def pieces(self, sizes: Sequence[int], own: int, peers: Peers | None = None) -> list[torch.Tensor]:
        """Carve the memory into pieces of these many bytes, and a last one of `own` bytes, for streams of one form of
        rows. The ranks of a node share all pieces but the last one, which each of them has. Collective over the node,
        with the same numbers.
        """
        place, ranks = (0, 1) if peers is None else (peers.place, len(peers.ranks))
        all_sizes = [*sizes, *([own] * ranks)]
        needed = sum(all_sizes)
        assert needed <= self.limit * ranks, "a round is larger than the communication memory"
        if self._memory.nbytes < needed or self._ranks != ranks:
            for cut in self.streams.values():
                cut.clear()
            self._memory, self._ranks = torch.empty(0, dtype=torch.uint8), ranks
            self._memory = (peers or Peers.alone(0, 1)).common(needed, torch.uint8)
        found = self._memory[:needed].split(all_sizes)
        return [*found[: len(sizes)], found[len(sizes) + place]]

    def cuts(self, stream: object) -> dict[Any, Any]:
        """A dict for a stream's pieces of the memory. It goes with the stream.

        It is empty after more memory was allocated: earlier pieces must not be held.
        """
        return self.streams.setdefault(stream, {})
