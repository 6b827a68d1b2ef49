"""Constant matrices in a scratch file, read a block of rows at a time in their order.

A first layer that works on blocks of rows reads the features, and their kept aggregate, once forwards and once
backwards. A reader in order needs two blocks in memory: the current one, and the next one, which a helper thread reads
meanwhile.
"""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field

import torch

from hpcgnn.extras.offload.scratch import REQUEST, ScratchFile
from hpcgnn.memory.arena import Arena, rounded
from hpcgnn.memory.stored_rows import StoredRows


def _block(width: int, dtype: torch.dtype, tile: int) -> int:
    """Rows that are read at a time: whole tiles."""
    return tile * max(1, REQUEST // (max(1, width * dtype.itemsize) * tile))


def bytes_at_work(shape: tuple[int, int], dtype: torch.dtype, tile: int) -> int:
    """Bytes of memory that are in use while a matrix on disk is read. tile: as of OnDisk."""
    count, width = shape
    return 3 * rounded(min(count, _block(width, dtype, tile)) * width * dtype.itemsize)


@dataclass
class _Block:
    """Some columns of some rows in the file. flight, rows: of the write, until it is done."""

    place: int
    size: int
    flight: "Future[list[int]] | None"
    rows: torch.Tensor | None
    sums: list[int] = field(default_factory=list)


class OnDisk(StoredRows):
    """A matrix (n, F) in a scratch file.

    Attributes:
        shape, dtype: as of a tensor.
        tile: largest number of rows that a layer works on at a time.
        columns: number of columns processed at a time when another matrix is made from this one.
        results: whether that matrix goes to the file as well.
        block: rows that are read at a time.
    """

    def __init__(
        self,
        scratch: ScratchFile,
        arena: Arena,
        shape: tuple[int, int],
        dtype: torch.dtype,
        tile: int,
        columns: int,
        results: bool = True,
    ) -> None:
        """An empty matrix: `append` writes its rows."""
        self.scratch, self.arena, self.shape, self.dtype = scratch, arena, shape, dtype
        self.tile, self.columns, self.results = tile, columns, results
        self.block = _block(shape[1], dtype, tile)
        self._groups: list[tuple[slice, list[_Block]]] = []  # columns, and their blocks

    def _like(self, dtype: torch.dtype) -> "OnDisk":
        """An empty matrix of this shape."""
        return OnDisk(self.scratch, self.arena, self.shape, dtype, self.tile, self.columns, self.results)

    def append(self, columns: slice, parts: Iterator[torch.Tensor]) -> None:
        """Write all rows of some columns (n, k), given in parts of any number of rows one after another."""
        blocks: list[_Block] = []
        rest: list[torch.Tensor] = []
        self._groups.append((columns, blocks))
        for part in parts:
            rest.append(part)
            while sum(map(len, rest)) >= self.block:
                whole = torch.cat(rest) if len(rest) > 1 else rest[0]
                self._write(blocks, whole[: self.block])
                rest = [whole[self.block :]]
        if sum(map(len, rest)):
            self._write(blocks, torch.cat(rest))
        for block in blocks:
            self._landed(block)

    def _write(self, blocks: list[_Block], rows: torch.Tensor) -> None:
        """Write a block; the one before the last must have been written, so that few are in memory."""
        if len(blocks) > 1:
            self._landed(blocks[-2])
        rows = rows.contiguous()
        place = self.scratch.place(rounded(rows.nbytes))
        flight = self.scratch.write(rows, rows.nbytes, place, False)
        blocks.append(_Block(place, rounded(rows.nbytes), flight, rows))

    def _landed(self, block: _Block) -> None:
        if block.flight is not None:
            block.sums = self.scratch.result(block.flight) or []
            block.flight = block.rows = None

    @contextlib.contextmanager
    def reading(self, stop: int | None = None) -> Iterator["Reading"]:
        """Read rows 0 … stop - 1 (None: all) in the body, in their order."""
        reading = Reading(self, len(self) if stop is None else stop, self._groups)
        try:
            yield reading
        finally:
            reading.close()

    def parts(self, columns: slice = slice(None)) -> Iterator[torch.Tensor]:
        """Some columns of all rows, a block at a time: (rows, k), valid until the next."""
        with self.reading() as reading:
            for first in range(0, len(self), self.block):
                yield reading[first : min(first + self.block, len(self))][:, columns]

    def mapped(self, make: Callable[[torch.Tensor], torch.Tensor]) -> "OnDisk | torch.Tensor":
        """make(x) of the whole matrix x, which makes every column (n,) of its result of that column alone. It is called
        for some columns at a time, in float32 where they are narrower.
        """
        width = self.shape[1]
        dtype = torch.promote_types(self.dtype, torch.float32)
        result = self._like(dtype) if self.results else None
        whole = None if self.results else self.arena.empty(*self.shape, dtype=dtype)
        for first in range(0, width, self.columns):
            columns = slice(first, min(first + self.columns, width))
            made = make(self._gathered(columns, dtype))
            if whole is not None:
                whole[:, columns] = made
            elif result is not None:
                result.append(columns, iter((made,)))
        return result if whole is None else whole  # type: ignore[return-value] # one of them is there

    def _gathered(self, columns: slice, dtype: torch.dtype) -> torch.Tensor:
        """Some columns (n, k), in memory, in a type that has all numbers of their own."""
        x = self.arena.empty(len(self), columns.stop - columns.start, dtype=dtype)
        done = 0
        for part in self.parts(columns):
            x[done : done + len(part)] = part
            done += len(part)
        return x

    def to(self, dtype: torch.dtype) -> "OnDisk":
        """The same numbers in another type, or this matrix itself."""
        if dtype == self.dtype:
            return self
        result = self._like(dtype)
        result.append(slice(0, self.shape[1]), (part.to(dtype) for part in self.parts()))
        return result

    def __del__(self) -> None:
        for _, blocks in self._groups:
            for block in blocks:
                self.scratch.give_back(block.place, block.size)


class Reading:
    """Rows of an OnDisk in their order. dtype: theirs."""

    def __init__(self, rows: OnDisk, stop: int, groups: list[tuple[slice, list[_Block]]]) -> None:
        self._rows, self._groups, self._stop = rows, groups, stop
        self.dtype = rows.dtype
        most = [max((block.size for block in blocks), default=0) for _, blocks in groups]
        self._memory = [[rows.arena.pages(size) for size in most] for _ in range(2)] if stop else []
        joined = len(groups) > 1 and stop > 0
        self._joined = rows.arena.empty(rows.block, rows.shape[1], dtype=rows.dtype) if joined else None
        self._at, self._flights = -1, self._begin(0)
        self._present: torch.Tensor | None = None

    def __getitem__(self, rows: slice) -> torch.Tensor:
        """Return rows of one block, at or after the last one; valid until the next call."""
        block = self._rows.block
        first = rows.start // block * block
        assert rows.stop <= first + block, "tiles do not go across blocks"
        while self._at < rows.start // block:
            self._advance()
        assert self._present is not None, "read a line above"
        return self._present[rows.start - first : rows.stop - first]

    def select(self, ids: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """out = the rows ids, int32 and increasing, from where the last ones ended on."""
        size, done = self._rows.block, 0
        while done < len(ids):
            number = int(ids[done]) // size
            last = int(torch.searchsorted(ids, torch.tensor((number + 1) * size, dtype=ids.dtype)))
            rows = self[number * size : min((number + 1) * size, len(self._rows))]
            torch.index_select(rows, 0, ids[done:last] - number * size, out=out[done:last])
            done = last
        return out

    def close(self) -> None:
        """Make sure that no thread writes to the memory any more. Surplus reads are harmless."""
        for flight in self._flights:
            self._rows.scratch.wait(flight)
        self._flights = []

    def _begin(self, number: int) -> "list[Future[None]]":
        """Begin to read a block, if there is one."""
        if number * self._rows.block >= self._stop:
            return []
        blocks = [blocks[number] for _, blocks in self._groups]
        return [
            self._rows.scratch.fill(memory, block.size, block.place, block.sums)
            for memory, block in zip(self._memory[number % 2], blocks, strict=True)
        ]

    def _advance(self) -> None:
        """Go on to the next block."""
        for flight in self._flights:
            self._rows.scratch.result(flight)
        self._at += 1
        number, count = self._at, len(self._rows)
        rows = min(self._rows.block, count - number * self._rows.block)
        self._flights = self._begin(number + 1)
        parts = []
        for memory, (columns, _) in zip(self._memory[number % 2], self._groups, strict=True):
            taken = columns.stop - columns.start
            size = rows * taken * self._rows.dtype.itemsize
            parts.append(memory[:size].view(self._rows.dtype).view(rows, taken))
        if self._joined is None:
            self._present = parts[0]
            return
        self._present = self._joined[:rows]
        for part, (columns, _) in zip(parts, self._groups, strict=True):
            self._present[:, columns] = part
