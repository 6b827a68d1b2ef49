"""The communication memory of a rank: at most `halo_buffer` bytes, whatever the number of ranks.

For each form of rows it is carved into two buffers to receive and one to send, and, where results go back to the owners
of the rows, two narrow ones for each way. Where rows travel narrowed, the memory in which they are widened is part of
it. Layers, directions and epochs share it, for no two streams are ever under way. Rows for a node of several
ranks lie in memory that they share; the limit then holds for all of them together.

What a turn sends has been on its way for as long as the turn before was computed, and its receivers wait for it, when
the next turn is packed in its place. A second buffer to send from would spare a wait that is over as a rule, and make
turns a quarter shorter: as much more of passes over the rows that turns add to.
"""

import weakref
from collections.abc import Sequence
from typing import Any

import torch

from hpcgnn.exchange.peers import Peers
from hpcgnn.memory.arena import Arena


class HaloBuffers:
    """limit: bytes for all buffers together. nbytes: what has been needed, and therefore allocated, so far.

    widest_row: bytes of the widest row that was declared, with a third of what it takes to return something for it
    and to widen it. arena: the rank's other large memory, for the operators that work from these buffers. streams:
    those that have cut something from the memory, and are there still.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.widest_row, self.arena = limit, 0, Arena()
        self._memory = self._common = torch.empty(0, dtype=torch.uint8)
        self._ranks = 1
        self.streams: weakref.WeakSet[object] = weakref.WeakSet()
        self._cuts: weakref.WeakKeyDictionary[object, dict[Any, Any]] = weakref.WeakKeyDictionary()

    @property
    def nbytes(self) -> int:
        return self._memory.nbytes + self._common.nbytes // self._ranks

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
        """The most rows of a turn: three buffers of rows of this size, and four of what returns for each, fit the
        limit.

        summed_bytes: per row of a turn, where results are summed before they are narrowed. widened_bytes: per row of a
        round, of which none has more than `rows`. ranks: of a node that has the rows together: each of them adds
        returns in memory of its own, and widens rows for itself.
        """
        given = (2 if summed_bytes else 2 * ranks) * return_bytes
        each = 3 * row_bytes + given + 2 * return_bytes + ranks * summed_bytes
        return max(0, ranks * (self.limit - widened_bytes * rows)) // max(1, each)

    def lease(self, sizes: list[int], peers: Peers | None = None, shared: Sequence[int] = ()) -> "Lease":
        """Carve the memory into pieces of these many bytes, for streams of one form of rows. peers, shared: which of
        the pieces the ranks of a node have together; collective over the node where there are any.
        """
        if peers is None or peers.rows is None:
            needed = sum(sizes)
            assert needed <= self.limit, "a round is larger than the communication memory"
            if self._memory.nbytes < needed:
                self._cuts.clear()
                self._memory = torch.empty(needed, dtype=torch.uint8)
            return Lease(self._memory[:needed].split(sizes))
        own = [0 if number in shared else size for number, size in enumerate(sizes)]
        common = [size if number in shared else 0 for number, size in enumerate(sizes)]
        each = peers.gather(sum(own))
        needed = sum(common) + sum(each)
        assert needed <= self.limit * len(each), "a round is larger than the communication memory"
        if self._common.nbytes < needed:
            self._cuts.clear()
            self._common = torch.empty(0, dtype=torch.uint8)
            self._common, self._ranks = peers.common(needed, torch.uint8), len(each)
        # Own pieces lie there too: how much is shared differs by the form, and the limit is that of both together.
        first = sum(common) + sum(each[: peers.place])
        pieces = self._common[: sum(common)].split(common), self._common[first : first + sum(own)].split(own)
        return Lease([pieces[number not in shared][number] for number in range(len(sizes))])

    def cuts(self, stream: object) -> dict[Any, Any]:
        """A dict for what a stream has cut from the memory and uses again. It is gone with the stream, and empty when
        more memory has been needed: what was there before must not be held.
        """
        if stream not in self._cuts:
            self.streams.add(stream)
            self._cuts[stream] = {}
        return self._cuts[stream]


class Lease:
    """The buffers of streams of one form of rows, as bytes; those of even and of odd turns alternate.

    In the order of their sizes: two to receive, one to send, two to give back, two to take back, one to sum what is
    given back, one to widen rows.
    """

    def __init__(self, pieces: Sequence[torch.Tensor]) -> None:
        self._pieces = pieces

    def receive(self, turn: int, size: int) -> torch.Tensor:
        """Where the rows of others arrive."""
        return self._pieces[turn % 2][:size]

    def send(self, size: int) -> torch.Tensor:
        """Where own rows are packed."""
        return self._pieces[2][:size]

    def give_back(self, turn: int, size: int) -> torch.Tensor:
        """What goes back to the owners of others' rows."""
        return self._pieces[3 + turn % 2][:size]

    def take_back(self, turn: int, size: int) -> torch.Tensor:
        """Where results for own rows arrive."""
        return self._pieces[5 + turn % 2][:size]

    def summed(self, size: int) -> torch.Tensor:
        """Where results for the rows of others are summed, if they are narrowed before they go back."""
        return self._pieces[7][:size]

    def widened(self, size: int | None) -> torch.Tensor:
        """Where rows are widened, one round's at a time; a size of None is all that there is."""
        return self._pieces[8][:size]
