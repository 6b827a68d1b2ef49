"""The products and the gathers of one epoch by themselves: the same shapes and strides at the same places of memory, in
the same order, and nothing between them. What they take is what the machine needs for an epoch's unavoidable work.

A product is done into memory that exists, since a machine's rate for products is not that of its page faults. A gather
is the probe of jobs/bench/kernels/gather.py: it reads the same rows in the same order, and sums them into registers.
"""

import time

import torch

from hpcgnn.kernels.library import load

# Operations that make their result, and the same that write it to a place.
_INTO = {
    torch.ops.aten.mm.default: torch.ops.aten.mm.out,
    torch.ops.aten.addmm.default: torch.ops.aten.addmm.out,
    torch.ops.aten.bmm.default: torch.ops.aten.bmm.out,
}


class Replay:
    """Recorder of a Watch, and then what was recorded, ready to be done again.

    flop: of the products; gathered_bytes: of the rows that the gathers read.
    """

    def __init__(self):
        self._sizes, self._calls, self._reads, self._buffers = {}, [], [], {}
        self.flop = self.gathered_bytes = 0

    def product(self, operation, factors, args, kwargs=(), result=None):
        """Note a product: a kernel's, or one of torch that has just been done and has made its result."""
        kwargs = dict(kwargs)
        if operation in _INTO:
            operation, kwargs["out"] = _INTO[operation], result
        self.flop += 2 * factors[0].numel() * (factors[1].shape[-1] if factors[1].dim() > 1 else 1)
        self._calls.append(
            (operation, [self._noted(x) for x in args], {name: self._noted(x) for name, x in kwargs.items()})
        )

    def gathered(self, rows, indptr, indices):
        """Note that rows are about to be read in the order of indices[indptr[0]:indptr[-1]]."""
        used = indices[int(indptr[0]) : int(indptr[-1])]
        self.gathered_bytes += used.numel() * rows.shape[1] * rows.element_size()
        self._reads.append((self._noted(rows), used))

    def _noted(self, x):
        """A tensor as (place, size, stride, offset); anything else as it is."""
        if not isinstance(x, torch.Tensor) or x.dim() == 0:
            return x
        place = x.untyped_storage().data_ptr(), x.dtype
        last = x.storage_offset() + sum((n - 1) * s for n, s in zip(x.shape, x.stride())) + 1 if x.numel() else 0
        self._sizes[place] = max(self._sizes.get(place, 0), last)
        return _Place(place, tuple(x.shape), x.stride(), x.storage_offset())

    def refill(self):
        """Fresh numbers everywhere: results become factors in the next repetition, and would grow. Makes the memory at
        first.
        """
        for place, size in self._sizes.items():
            if place not in self._buffers:
                self._buffers[place] = torch.empty(size, dtype=place[1])
            self._buffers[place].uniform_(-1, 1)

    def products(self):
        """(wall, processor) seconds of all products."""
        calls = [
            (operation, [self._placed(x) for x in args], {name: self._placed(x) for name, x in kwargs.items()})
            for operation, args, kwargs in self._calls
        ]
        start = time.perf_counter(), time.process_time()
        for operation, args, kwargs in calls:
            operation(*args, **kwargs)
        return time.perf_counter() - start[0], time.process_time() - start[1]

    def gathers(self):
        """(wall, processor) seconds of all gathers."""
        reads = [(self._placed(rows), indices) for rows, indices in self._reads]
        probe = load().kernels.probe
        start = time.perf_counter(), time.process_time()
        for rows, indices in reads:
            probe(rows, indices)
        return time.perf_counter() - start[0], time.process_time() - start[1]

    def _placed(self, x):
        if not isinstance(x, _Place):
            return x
        return torch.as_strided(self._buffers[x.storage], x.shape, x.stride, x.offset)


class _Place:
    """Where a tensor lies, and how."""

    def __init__(self, storage, shape, stride, offset):
        self.storage, self.shape, self.stride, self.offset = storage, shape, stride, offset
