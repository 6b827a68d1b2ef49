"""Matrices of a node, whose ranks read each other's rows where they are.

A matrix of the node has the rows of all its ranks, one rank's after the other's. Each rank writes its own part, an
ordinary tensor, and gathers from the whole: no message, no copy, no buffer. Two meetings keep them apart. Before any
rank reads, all have written; before any rank writes again, all have read.

Matrices lie in an arena that all these ranks have alike: a matrix that no rank needs any more gives its memory to the
next ones, of any shape. All ranks take matrices in the same order, but their collectors of garbage may drop rows at
different moments. So each meeting tells which matrices a rank still holds, and what none holds is free from then on.
Thus ranks agree on the place of each matrix, which each meeting checks.
"""

import mmap
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hpcgnn.comm.communicator import NodeMemory
from hpcgnn.memory.arena import Arena, lent, rounded
from hpcgnn.memory.resident import mapped_bytes

#: The ledger's name for the seconds in meetings.
KIND = "intra_node"
# Own parts have an address, also where they have no rows.
_APART = 64


@dataclass(frozen=True, eq=False)
class NodeLayout:
    """How many rows each rank of a node has of a matrix. first: int of each rank, by place, and the number of all."""

    first: tuple[int, ...]
    place: int

    @property
    def own(self) -> slice:
        """This rank's rows of the whole."""
        return slice(self.first[self.place], self.first[self.place + 1])

    @property
    def num_own(self) -> int:
        return self.own.stop - self.own.start

    @property
    def num_rows(self) -> int:
        """Of all ranks of the node."""
        return self.first[-1]


class _Matrix:
    """A matrix of the node. place: (number of the piece of memory, first byte), the same on all ranks. held: whether
    anybody on this rank refers to its rows.
    """

    def __init__(
        self, place: tuple[int, int], memory: mmap.mmap, spread: NodeLayout, width: int, dtype: torch.dtype
    ) -> None:
        self.memory, self.spread, self.width, self.dtype = memory, spread, width, dtype
        self.place, self.number, self.held = place, (place[0] << 44) + place[1], True

    @staticmethod
    def nbytes(spread: NodeLayout, width: int, dtype: torch.dtype) -> int:
        """Bytes of a matrix in the arena."""
        return rounded(spread.num_rows * width * dtype.itemsize + _APART * (len(spread.first) - 1))

    def own(self) -> torch.Tensor:
        """This rank's rows."""
        spread, row = self.spread, self.width * self.dtype.itemsize
        start, nbytes = spread.own.start * row, spread.num_own * row
        if nbytes == 0:
            start, nbytes = spread.num_rows * row + _APART * spread.place, _APART
        shape = spread.num_own, self.width
        return lent(self.memory, self.place[1] + start, nbytes, self.dtype, shape, self._leave)

    def _leave(self) -> None:
        self.held = False

    def has(self, spread: NodeLayout, own: torch.Tensor) -> bool:
        """Whether a tensor in this rank's part is its rows, or some columns of them."""
        steps = [step for step, size in zip(own.stride(), own.shape, strict=True) if size > 1]
        wanted = [step for step, size in zip((self.width, 1), own.shape, strict=True) if size > 1]
        return spread is self.spread and len(own) == spread.num_own and steps == wanted

    def whole(self) -> torch.Tensor:
        """(rows of all ranks, width)."""
        count = self.spread.num_rows * self.width
        if count == 0:
            return torch.empty(0, self.width, dtype=self.dtype)
        found = torch.frombuffer(self.memory, dtype=self.dtype, count=count, offset=self.place[1])
        return found.view(-1, self.width)


class SharedRows:
    """The matrices of this rank's node. memory: NodeMemory.

    Everything is collective over the node, except where a method states otherwise.
    """

    def __init__(self, memory: NodeMemory) -> None:
        self.ranks, self.place, self._memory = memory.ranks, memory.place, memory
        self._arena = Arena(memory.allocate)
        self._by_address: dict[int, _Matrix] = {}  # whose memory is not free, in the order of all ranks
        self._spreads: dict[tuple[int, ...], NodeLayout] = {}
        self._common: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()

    def spread(self, num_rows: int) -> NodeLayout:
        """The NodeLayout of matrices with this number of own rows; the same one for the same rows."""
        first = [0]
        for rows in self._memory.gather(num_rows):
            first.append(first[-1] + rows)
        return self._spreads.setdefault(tuple(first), NodeLayout(tuple(first), self._memory.place))

    def gather(self, value: Any) -> list[Any]:
        """The small values of all ranks of the node, by place."""
        return self._memory.gather(value)

    def empty(self, spread: NodeLayout, width: int, dtype: torch.dtype) -> torch.Tensor:
        """Own rows (num_own, width), uninitialised. Their memory is free when no rank refers to them any more."""
        size = _Matrix.nbytes(spread, width, dtype)
        if self._by_address and max(self._arena.free_sizes(), default=0) < size:
            self.meet(-3)  # matrices may have been left since the last meeting
        number, start, memory = self._arena.reserve(size)
        matrix = _Matrix((number, start), memory, spread, width, dtype)
        own = matrix.own()
        self._by_address[own.untyped_storage().data_ptr()] = matrix
        return own

    @property
    def own_bytes(self) -> int:
        """This rank's share of the memory of all matrices, also of free memory. Local."""
        return self._arena.nbytes // len(self.ranks)

    def of_all(self, counts: Sequence[int]) -> Callable[[int, int, torch.dtype], torch.Tensor | None]:
        """For an Arena: gives matrices of these numbers of own rows, the same number of them on all ranks, and None for
        other numbers of rows. Numbers that two of them share on any rank are left out: ranks must decide alike.
        """
        spreads = {spread.first: spread for spread in map(self.spread, counts)}.values()
        sizes = [np.diff(spread.first) for spread in spreads]
        clear = {
            spread.num_own: spread
            for spread, mine in zip(spreads, sizes, strict=True)
            if sum(bool((mine == other).any()) for other in sizes) == 1
        }

        def make(rows: int, width: int, dtype: torch.dtype) -> torch.Tensor | None:
            return self.empty(clear[rows], width, dtype) if rows in clear else None

        return make

    def open(self, spread: NodeLayout, own: torch.Tensor, kind: str = KIND) -> tuple[torch.Tensor, torch.Tensor]:
        """(the rows of all ranks (num_rows, F), own rows (num_own, F) among them), where each rank gives its own ones.
        They stay until `close`, or longer where nobody writes over them: rows that `empty` gave are read as they are,
        others copied to such. kind: of the wait.
        """
        matrix = self._by_address.get(own.untyped_storage().data_ptr())
        if matrix is None or not matrix.has(spread, own):
            own = self.empty(spread, own.shape[1], own.dtype).copy_(own)
            matrix = self._by_address[own.untyped_storage().data_ptr()]
        self.meet(matrix.number, kind)
        first = own.storage_offset()
        return matrix.whole()[:, first : first + own.shape[1]], own

    def trim(self) -> None:
        """Give back memory without references."""
        self.meet(-5)
        self._arena.trim()

    def foreign_bytes(self) -> int:
        """Resident bytes of other ranks that this process has touched: what is more than its share of the matrices and
        of common memory. The kernel counts them here too. Local.
        """
        of_rows = mapped_bytes(self._arena.pieces()) - self.own_bytes
        return max(0, of_rows) + mapped_bytes(self.common_storages().items()) - self.common_bytes()

    def close(self, kind: str = KIND) -> None:
        """Wait until all ranks have read the opened matrix."""
        self.meet(-1, kind)

    def meet(self, number: int, kind: str = KIND) -> None:
        """Wait until all ranks are here. number: the same for all, which is checked."""
        matrices = list(self._by_address.items())
        held = self._memory.meet(number, kind, [matrix.held for _, matrix in matrices])
        for (address, matrix), by_any in zip(matrices, held, strict=True):
            if not by_any:
                del self._by_address[address]
                self._arena.give_back(*matrix.place, matrix.nbytes(matrix.spread, matrix.width, matrix.dtype))

    def common(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Uninitialised numbers (count,) that all ranks read and write, for as long as any refers to them. count: the
        same for all.
        """
        if count == 0:
            return torch.empty(0, dtype=dtype)
        memory = self._memory.allocate(count * dtype.itemsize)
        self._common.add(memory)
        return torch.frombuffer(memory, dtype=dtype, count=count)

    def common_storages(self) -> dict[int, int]:
        """{address: bytes} of memory from `common` with references left. Local."""
        return {torch.frombuffer(each, dtype=torch.uint8).data_ptr(): len(each) for each in self._common}

    def common_bytes(self) -> int:
        """This rank's share of the resident bytes of it. Local."""
        return mapped_bytes(self.common_storages().items()) // len(self.ranks)

    def whole(self, spread: NodeLayout, values: torch.Tensor) -> torch.Tensor:
        """The values (num_rows,) of all ranks, of own ones (num_own,): for narrow things that are kept."""
        found = self.common(spread.num_rows, values.dtype)
        found[spread.own] = values
        self.meet(-4)
        return found
