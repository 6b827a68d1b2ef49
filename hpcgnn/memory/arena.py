"""The large memory of a rank: it passes from tensor to tensor and from epoch to epoch instead of back to the system.

A new tensor costs a page fault for every 4 KiB, and the kernel clears each page: a third of the processor time of an
epoch. So the arena allocates the big tensors of a step. They are ordinary tensors. When the last reference to one goes,
its memory returns by itself, joins its free neighbours, and serves any tensor that fits. From the second epoch on the
arena allocates nothing. It asks for huge pages, which a gather of random rows needs as much as the allocator does.

The last reference may go in the collector of garbage, in the middle of any function, or in another thread. So returned
memory only enters a queue, and the thread that takes memory empties the queue.

Tensors that are saved for later are kept by a pool, which is asked before the arena grows.
"""

import contextlib
import functools
import math
import mmap
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

#: The size of a page: large memory begins at a multiple of it, and has as many bytes.
GRAIN = 4096


def rounded(nbytes: int) -> int:
    """The next multiple of GRAIN."""
    return -(-nbytes // GRAIN) * GRAIN


class _Lent(np.ndarray):
    """The bytes of a tensor, as torch holds on to them; a subclass, because plain arrays tell nobody that they go."""

    give_back: Callable[[], object] | None = None

    def __del__(self) -> None:
        if self.give_back is not None:  # not of a view
            self.give_back()


def lent(
    memory: Any, start: int, nbytes: int, dtype: torch.dtype, shape: tuple[int, ...], give_back: Callable[[], object]
) -> torch.Tensor:
    """A tensor in `nbytes` bytes of a buffer from byte `start` on; give_back is called when nothing refers to them.

    That may be in any thread, and within any statement: give_back must be one that cannot be divided. The tensor is not
    a view: autograd forbids to write in place to one that an operator has returned.
    """
    taken = _Lent(nbytes, np.uint8, memory, start)
    taken.give_back = give_back
    if not nbytes:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(taken, dtype=dtype).resize_(shape)


class SavedTensor:
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


class SavedTensorPool:
    """Keeps saved tensors in memory. A subclass may put them elsewhere, to stay within a number of bytes."""

    def keep(self, tensor: torch.Tensor) -> SavedTensor:
        """A tensor, which nobody writes to until it is asked for."""
        return SavedTensor(tensor)

    def note(self, taken: int) -> None:
        """taken: bytes in use of the arena, after each that it gives."""

    def gone(self, address: int) -> None:
        """Memory of the arena at this address is free again."""

    def make_room(self, size: int) -> bool:
        """Whether memory was freed because the arena may not grow by `size` bytes."""
        return False


#: Smaller tensors are from malloc.
SMALL = 1 << 18
_THREAD = threading.local()


def recycled(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """An uninitialised tensor of this thread's arena, for operators that know no graph; from malloc where it has none.

    malloc gives memory of a large tensor back at once: one thread removes its pages, and the next tensor needs new
    ones, which the kernel clears.
    """
    found = getattr(_THREAD, "arena", None)
    arena = None if found is None else found()
    return torch.empty(shape, dtype=dtype) if arena is None else arena.empty(*shape, dtype=dtype)


class Arena:
    """Makes tensors from recycled memory.

    Attributes:
        nbytes: bytes of all pieces.
        most: peak bytes in use since `mark()`.
        keeper: keeps tensors for later.
        coder: None, or coder(tensor, exact), which keeps it as codes (plugins/coded_keeping.py), or returns None.
        shared: None, or a function that returns a matrix (rows, width) of a type that other ranks of the node can read.
            It returns None for other numbers of rows than those of layers.
    """

    def __init__(self, new_piece: Callable[[int], mmap.mmap] | None = None) -> None:
        """new_piece: returns memory of at least the given bytes; None: private memory."""
        self.nbytes = self._taken = self.most = 0
        self._new_piece = new_piece or _new_piece
        self._pieces: list[mmap.mmap | None] = []
        self._addresses: list[int] = []  # of the pieces
        # (number of the piece, first byte, bytes), in this order; no two of them touch
        self._free: list[tuple[int, int, int]] = []
        self._returned: deque[tuple[int, int, int]] = deque()  # spaces that are to be free again
        self.keeper = SavedTensorPool()
        self.coder: Callable[[torch.Tensor, int], SavedTensor | None] | None = None
        self.shared: Callable[[int, int, torch.dtype], torch.Tensor | None] | None = None

    def serve(self) -> "Arena":
        """Be the arena of this thread, while others refer to it (see `recycled`). Returns it."""
        _THREAD.arena = weakref.ref(self)
        return self

    def keep(self, tensor: torch.Tensor, exact: int | None = None) -> SavedTensor:
        """Keep a tensor for later. Until it is asked for nobody may write to it, and only who still holds it itself may
        read it.

        Args:
            tensor: the tensor.
            exact: None, or the number of last columns that are needed as they are; others may be rounded (`--keep`).
        """
        coded = None if self.coder is None or exact is None else self.coder(tensor, exact)
        return self.keeper.keep(tensor) if coded is None else coded

    @property
    def taken(self) -> int:
        """Bytes in use now."""
        self._settle()
        return self._taken

    def mark(self) -> None:
        """Forget `most`."""
        self.most = self.taken

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """An uninitialised tensor of this shape."""
        nbytes = math.prod(shape) * dtype.itemsize
        return torch.empty(shape, dtype=dtype) if nbytes < SMALL else self._take(nbytes, dtype, *shape)

    def empty_streamed(self, rows: int, width: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """An uninitialised tensor (rows, width) of a layer that is likely to be streamed, or its gradient in its place:
        where the ranks of a node share memory, the others read it as it is. By all ranks alike.
        """
        found = None if self.shared is None else self.shared(rows, width, dtype)
        return self.empty(rows, width, dtype=dtype) if found is None else found

    def pages(self, nbytes: int) -> torch.Tensor:
        """uint8 (nbytes,) at a multiple of GRAIN; nbytes: a multiple of it."""
        return self._take(nbytes, torch.uint8, nbytes)

    def _take(self, nbytes: int, dtype: torch.dtype, *shape: int) -> torch.Tensor:
        """A tensor of `nbytes` bytes in a space of its own."""
        size = rounded(nbytes)
        number, start, piece = self.reserve(size)
        return lent(piece, start, nbytes, dtype, shape, functools.partial(self._returned.append, (number, start, size)))

    def reserve(self, size: int) -> tuple[int, int, mmap.mmap]:
        """(number of the piece, first byte, the piece) of a space of `size` bytes, taken until `give_back`."""
        number, start = self._find(size)
        piece = self._pieces[number]
        assert piece is not None, "free memory is of a piece that is there"
        self._taken += size
        self.most = max(self.most, self._taken)
        self.keeper.note(self._taken)
        return number, start, piece

    def empty_like(self, x: torch.Tensor) -> torch.Tensor:
        """An uninitialised contiguous tensor of x's shape and dtype."""
        return self.empty(*x.shape, dtype=x.dtype)

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether the memory of a tensor is of this arena."""
        place = tensor.untyped_storage().data_ptr()
        return any(start <= place < start + size for start, size in self.pieces())

    def pieces(self) -> list[tuple[int, int]]:
        """(address, bytes) of all pieces."""
        there = zip(self._addresses, self._pieces, strict=True)
        return [(address, len(piece)) for address, piece in there if piece is not None]

    def free_sizes(self) -> list[int]:
        """The bytes of all spaces that are free; no two of them touch."""
        self._settle()
        return [size for _, _, size in self._free]

    def _find(self, size: int) -> tuple[int, int]:
        """(piece, first byte) of the smallest free space that is large enough; a new piece if there is none."""
        while True:
            if self._returned:
                self._settle()
            fitting = [(free, index) for index, (_, _, free) in enumerate(self._free) if free >= size]
            if fitting:
                best = min(fitting)[1]
                number, start, free = self._free.pop(best)
                if free > size:
                    self._free.insert(best, (number, start + size, free - size))
                return number, start
            if not self.keeper.make_room(size):
                break
        self.trim()
        piece = self._new_piece(size)
        self._pieces.append(piece)
        self._addresses.append(np.frombuffer(piece, np.uint8).ctypes.data)
        self.nbytes += len(piece)
        if len(piece) > size:
            self._free.append((len(self._pieces) - 1, size, len(piece) - size))
        return len(self._pieces) - 1, 0

    def fits(self, size: int) -> bool:
        """Whether a free space has this size."""
        return max(self.free_sizes(), default=0) >= size

    @property
    def unused(self) -> int:
        """Bytes of pieces that are wholly free."""
        return sum(free for number, _, free in self._free if free == len(self._pieces[number] or ()))

    def trim(self) -> None:
        """Return wholly free pieces to the system: their tensors will fit in the next, larger piece."""
        self._settle()
        for space in list(self._free):
            number, _, size = space
            piece = self._pieces[number]
            if piece is not None and size == len(piece):
                self._free.remove(space)
                self._pieces[number] = None
                self.nbytes -= size

    def give_back(self, number: int, start: int, size: int) -> None:
        """Free a space of `reserve`. By any thread, also within the collector."""
        self._returned.append((number, start, size))

    def _settle(self) -> None:
        """Free what has been returned. Meanwhile the collector may only add to the queue."""
        while self._returned:
            number, start, size = self._returned.popleft()
            self._taken -= size
            if self._pieces[number] is not None:
                self.keeper.gone(self._addresses[number] + start)
            joined: list[tuple[int, int, int]] = []
            for space in sorted([*self._free, (number, start, size)]):
                if joined and joined[-1][0] == space[0] and sum(joined[-1][1:]) == space[1]:
                    joined[-1] = (space[0], joined[-1][1], joined[-1][2] + space[2])
                else:
                    joined.append(space)
            self._free = joined


def _new_piece(size: int) -> mmap.mmap:
    try:
        piece = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"asked for {size} bytes: {error.strerror}") from error
    with contextlib.suppress(OSError, AttributeError):  # a kernel without huge pages, or another system
        piece.madvise(mmap.MADV_HUGEPAGE)
    return piece
