"""The large memory of a rank: pieces that go from epoch to epoch instead of back to the system.

A tensor that is freed and made anew costs a page fault for every 4 KiB, and the kernel clears each page: a third of the
processor time of an epoch. So the big tensors of a step are taken here. They are ordinary tensors; when the last
reference to one goes, its memory returns by itself and serves the next that fits. From the second epoch on nothing is
allocated. Pieces are asked to be of huge pages, which a gather of random rows needs as much as the allocator does.
"""

import math
import mmap
import weakref

import numpy as np
import torch

# Below this, malloc is good enough.
SMALL = 1 << 20
# Sizes of pieces are rounded up to eighths of powers of two, so that tensors of nearly the same size share pieces. What is
# rounded up is never touched, and therefore never resident.
STEPS = 8
# A free piece serves what takes at least this part of it; a larger piece would be missed elsewhere.
LEAST_USE = 0.6


class _Taken(np.ndarray):
    """The bytes of a piece, as torch holds on to them; a subclass, because plain arrays cannot be watched."""


class Arena:
    """Makes tensors whose memory is used again. taken: bytes in use now; most: the most since `mark()`."""

    def __init__(self):
        self.taken = self.most = 0
        self._free = []  # (bytes, piece, [bytes ever used of it]), smallest first

    @property
    def nbytes_free(self):
        """Bytes of the pieces that nobody uses now, as far as they were ever used."""
        return sum(touched[0] for _, _, touched in self._free)

    def mark(self):
        """Forget `most`."""
        self.most = self.taken

    def empty(self, *shape, dtype=torch.float32):
        """An uninitialised tensor of this shape."""
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes < SMALL:
            return torch.empty(shape, dtype=dtype)
        size, piece, touched = self._piece(nbytes)
        touched[0] = max(touched[0], nbytes)
        taken = np.frombuffer(piece, np.uint8, nbytes).view(_Taken)
        weakref.finalize(taken, self._give_back, size, piece, touched, nbytes).atexit = False
        self.taken += nbytes
        self.most = max(self.most, self.taken)
        return torch.from_numpy(taken).view(dtype).view(shape)

    def empty_like(self, x):
        """An uninitialised contiguous tensor of x's shape and dtype."""
        return self.empty(*x.shape, dtype=x.dtype)

    def _piece(self, nbytes):
        for index, (size, piece, touched) in enumerate(self._free):
            if size >= nbytes:
                if size * LEAST_USE > nbytes:
                    break
                del self._free[index]
                return size, piece, touched
        size = _rounded(nbytes)
        piece = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            try:
                piece.madvise(mmap.MADV_HUGEPAGE)
            except OSError:
                pass  # a kernel without huge pages
        return size, piece, [0]

    def _give_back(self, size, piece, touched, nbytes):
        self.taken -= nbytes
        self._free.append((size, piece, touched))
        self._free.sort(key=lambda entry: entry[0])


def _rounded(nbytes):
    step = 1 << max(12, (nbytes - 1).bit_length() - 1 - int(math.log2(STEPS)))
    return -(-nbytes // step) * step
