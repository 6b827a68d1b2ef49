"""Matrices between layers in a scratch file: written in tiles of rows, read in tiles of rows or as columns.

A gather reads its rows in any order, so they must lie in memory; but each column of a sum is made of the same column
alone. So a layer gathers some columns of a matrix at a time, and has all else of it a few rows at a time. A block of
rows lies in one place of the file, and in it group of columns after group.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import torch

from hpcgnn.memory.scratch import GRAIN, REQUEST, Scratch, rounded
from hpcgnn.memory.shelf import Pages

# Transfers of columns under way at a time, and blocks of rows that are read ahead, and that are being written.
_FLIGHTS, AHEAD, BEHIND = 4, 2, 4


@dataclass
class Disk:
    """Where matrices between layers lie.

    Attributes:
        scratch: the file.
        arena: the memory of what is read.
        columns: how many columns are in memory at a time where rows are gathered.
        block: bytes of a block of rows, about.
        waited: seconds of waiting for the file.
    """

    scratch: Scratch
    arena: Pages
    columns: int
    block: int = REQUEST // 2
    waited: float = 0.0
    _resident: torch.Tensor | None = None

    def matrix(self, count: int, width: int, dtype: torch.dtype) -> "Columns":
        """A matrix (count, width), whose rows are to be written."""
        return Columns(self, count, width, dtype)

    def result(self, flight: "Future[list[int]] | Future[None]") -> list[int]:
        """Wait for a transfer, and return its checksums."""
        begun = time.perf_counter()
        found = self.scratch.result(flight)
        self.waited += time.perf_counter() - begun
        return found or []

    def resident(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Memory for the columns of matrices of this number of rows. It is the same for all, and stays: others would
        lie in its place as soon as it were free.
        """
        size = max(GRAIN, rounded(count * self.columns * dtype.itemsize))
        if self._resident is None or len(self._resident) < size:
            self._resident = None  # before there is a larger one
            self._resident = self.arena.pages(size)
        return self._resident


@dataclass
class _Piece:
    """A group's columns of a block. size: in the file; sums: its checksums."""

    place: int
    size: int
    sums: list[int] = field(default_factory=list)


class Columns:
    """A matrix (n, F) on a Disk. groups: slices of columns. block: rows of a block."""

    def __init__(self, disk: Disk, count: int, width: int, dtype: torch.dtype) -> None:
        self.disk, self.shape, self.dtype = disk, (count, width), dtype
        self.groups = [slice(k, min(k + disk.columns, width)) for k in range(0, width, disk.columns)]
        grain = GRAIN // dtype.itemsize  # so many rows fill whole pages, whatever the number of columns
        self.block = grain * max(1, disk.block // (grain * width * dtype.itemsize))
        self.blocks = [slice(at, min(at + self.block, count)) for at in range(0, count, self.block)]
        self._pieces: list[list[_Piece]] = []
        self._places: list[tuple[int, int]] = []
        for rows in self.blocks:
            sizes = [rounded((rows.stop - rows.start) * self.width_of(group) * dtype.itemsize) for group in self.groups]
            place = disk.scratch.place(sum(sizes))
            self._places.append((place, sum(sizes)))
            self._pieces.append([_Piece(place + sum(sizes[:k]), size) for k, size in enumerate(sizes)])

    def __len__(self) -> int:
        return self.shape[0]

    def width_of(self, group: slice) -> int:
        """The number of its columns."""
        return group.stop - group.start

    def load(self, number: int, memory: torch.Tensor) -> torch.Tensor:
        """The columns of a group (n, k), read into the memory of `Disk.resident`."""
        width, flights = self.width_of(self.groups[number]), []
        for rows, pieces in zip(self.blocks, self._pieces, strict=True):
            piece, at = pieces[number], rows.start * width * self.dtype.itemsize
            flights.append(self._fill(memory[at : at + piece.size], piece))
            if len(flights) > _FLIGHTS:
                self.disk.result(flights.pop(0))
        for flight in flights:
            self.disk.result(flight)
        return memory[: len(self) * width * self.dtype.itemsize].view(self.dtype).view(len(self), width)

    def writing(self, numbers: Sequence[int] | None = None) -> "Writing":
        """A context in which all rows of some groups (None: all), which follow each other, are written."""
        return Writing(self, range(len(self.groups)) if numbers is None else numbers)

    @contextlib.contextmanager
    def reading(self, numbers: Sequence[int] | None = None) -> Iterator["Reading"]:
        """Read rows of some groups (None: all) in the body."""
        reading = Reading(self, range(len(self.groups)) if numbers is None else numbers)
        try:
            yield reading
        finally:
            reading.close()

    def views(self, block: int, numbers: Sequence[int], memory: torch.Tensor) -> list[torch.Tensor]:
        """The groups' rows (rows, k) of a block in memory where one lies behind the other."""
        found, at, rows = [], 0, self.blocks[block].stop - self.blocks[block].start
        for number in numbers:
            width = self.width_of(self.groups[number])
            nbytes = rows * width * self.dtype.itemsize
            found.append(memory[at : at + nbytes].view(self.dtype).view(rows, width))
            at += self._pieces[block][number].size
        return found

    def largest(self, numbers: Sequence[int]) -> int:
        """Bytes of the largest block of these groups."""
        return max((sum(pieces[number].size for number in numbers) for pieces in self._pieces), default=0)

    def fill(self, block: int, numbers: Sequence[int], memory: torch.Tensor) -> "list[Future[None]]":
        """Begin to read groups of a block."""
        return [self._fill(part, piece) for part, piece in self._parts(block, numbers, memory)]

    def store(self, block: int, numbers: Sequence[int], memory: torch.Tensor) -> Callable[[], None]:
        """Begin to write groups of a block; a function to wait for it."""
        scratch = self.disk.scratch
        under_way = [
            (piece, scratch.write(part, piece.size, piece.place, True))
            for part, piece in self._parts(block, numbers, memory)
        ]

        def land() -> None:
            for piece, flight in under_way:
                piece.sums = self.disk.result(flight)

        return land

    def _parts(self, block: int, numbers: Sequence[int], memory: torch.Tensor) -> Iterator[tuple[torch.Tensor, _Piece]]:
        at = 0
        for piece in (self._pieces[block][number] for number in numbers):
            yield memory[at : at + piece.size], piece
            at += piece.size

    def _fill(self, memory: torch.Tensor, piece: _Piece) -> "Future[None]":
        return self.disk.scratch.fill(memory, piece.size, piece.place, piece.sums)

    def __del__(self) -> None:
        for place, size in self._places:
            self.disk.scratch.give_back(place, size)


class Writing:
    """Takes rows in any order that finishes most blocks before it begins many: all rows, each once."""

    def __init__(self, to: Columns, numbers: Sequence[int]) -> None:
        self._to, self._numbers, self._size = to, list(numbers), to.largest(numbers)
        self._first = to.groups[self._numbers[0]].start if self._numbers else 0
        self._open: dict[int, tuple[torch.Tensor, list[torch.Tensor], int]] = {}  # block: memory, views, rows to come
        self._free: list[torch.Tensor] = []
        self._flights: list[tuple[torch.Tensor, Callable[[], None]]] = []

    def __enter__(self) -> Self:
        return self

    def put(self, rows: slice, part: torch.Tensor) -> None:
        """Write the groups' columns of some rows."""
        to, first = self._to, rows.start
        while first < rows.stop:
            number = first // to.block
            block = to.blocks[number]
            last = min(rows.stop, block.stop)
            memory, views, left = self._open.pop(number) if number in self._open else self._begin(number)
            for group, view in zip(self._numbers, views, strict=True):
                at = to.groups[group]
                view[first - block.start : last - block.start] = part[
                    first - rows.start : last - rows.start, at.start - self._first : at.stop - self._first
                ]
            left -= last - first
            if left:
                self._open[number] = memory, views, left
            else:
                self._flights.append((memory, to.store(number, self._numbers, memory)))
            first = last

    def _begin(self, number: int) -> tuple[torch.Tensor, list[torch.Tensor], int]:
        if not self._free and len(self._flights) >= BEHIND:
            self._land()
        memory = self._free.pop() if self._free else self._to.disk.arena.pages(self._size)
        block = self._to.blocks[number]
        return memory, self._to.views(number, self._numbers, memory), block.stop - block.start

    def _land(self) -> None:
        memory, land = self._flights.pop(0)
        land()
        self._free.append(memory)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._flights:
            self._land()
        assert error is not None or not self._open, "all rows are written"


class Reading:
    """Rows of some groups, mostly in their order."""

    def __init__(self, of: Columns, numbers: Sequence[int]) -> None:
        self._of, self._numbers = of, list(numbers)
        size = of.largest(numbers) if self._numbers else 0
        self._free = [of.disk.arena.pages(size) for _ in range(min(len(of.blocks), 1 + AHEAD))] if size else []
        self._present: dict[int, tuple[torch.Tensor, list[Future[None]]]] = {}

    def rows(self, rows: slice, out: torch.Tensor) -> torch.Tensor:
        """out = these rows, in the groups' columns of out (rows, F)."""
        self._copy(rows.start, rows.stop, out, rows.start)
        return out

    def select(self, ids: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """out = the rows `ids`, int32 and increasing, in the groups' columns of out (len(ids), F)."""
        done, size = 0, self._of.block
        while done < len(ids) and self._numbers:
            number = int(ids[done]) // size
            last = int(torch.searchsorted(ids, torch.tensor((number + 1) * size, dtype=ids.dtype)))
            for group, view in zip(self._numbers, self._block(number), strict=True):
                out[done:last, self._of.groups[group]] = view.index_select(0, ids[done:last] - number * size)
            done = last
        return out

    def _copy(self, first: int, stop: int, out: torch.Tensor, begin: int) -> None:
        of = self._of
        while first < stop and self._numbers:
            number = first // of.block
            block = of.blocks[number]
            last = min(stop, block.stop)
            for group, view in zip(self._numbers, self._block(number), strict=True):
                out[first - begin : last - begin, of.groups[group]] = view[first - block.start : last - block.start]
            first = last

    def _block(self, number: int) -> list[torch.Tensor]:
        """The groups' rows of a block, in memory until the next one is asked for; the following are on their way."""
        wanted = range(number, min(number + 1 + AHEAD, len(self._of.blocks)))
        for each in [each for each in self._present if each not in wanted]:
            self._free.append(self._landed(each))
            del self._present[each]
        for each in wanted:
            if each not in self._present and self._free:
                memory = self._free.pop()
                self._present[each] = memory, self._of.fill(each, self._numbers, memory)
        return self._of.views(number, self._numbers, self._landed(number))

    def _landed(self, number: int) -> torch.Tensor:
        memory, flights = self._present[number]
        while flights:
            self._of.disk.result(flights.pop(0))
        return memory

    def close(self) -> None:
        """Make sure that no thread writes to the memory any more."""
        for _, flights in self._present.values():
            for flight in flights:
                self._of.disk.scratch.wait(flight)
        self._present = {}
