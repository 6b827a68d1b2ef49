"""The primitive that everything hangs on: remote rows stream past the rank in a bounded buffer, round after round.

`Stream(x)` yields (block, rows, scale): first the rank's own block with `x` itself (no message), then, for each round,
the block of that round with the rows received for it. While one round is computed the next is in flight. Rows are valid
only until the next one is asked for.

Buffers: two to receive and two to send, each of at most a quarter of `halo_buffer` bytes, allocated once for the widest
rows that are ever streamed and reused by every layer, direction and epoch. (The sizes are those of the fullest round
over all ranks, so on a rank with a small halo they may stay partly unused.)
"""

import torch

from hpcgnn import kernels
from hpcgnn.graph.rounds import coalesce, merge


class HaloBuffers:
    """The communication memory of a rank: at most `limit` bytes in all, whatever the number of ranks."""

    def __init__(self, limit: int):
        self.limit = limit
        self._memory = [torch.empty(0, dtype=torch.uint8) for _ in range(4)]

    def cap(self, row_bytes: int) -> int:
        """How many rows of this many bytes fit in one of the four buffers."""
        return self.limit // 4 // row_bytes

    @property
    def nbytes(self):
        return sum(memory.nbytes for memory in self._memory)

    def _view(self, index, rows, width, dtype):
        needed = rows * width * dtype.itemsize
        assert needed <= self.limit // 4, "a round is larger than its buffer"
        if self._memory[index].nbytes < needed:
            self._memory[index] = torch.empty(needed, dtype=torch.uint8)
        return self._memory[index][:needed].view(dtype).view(rows, width)

    def receive(self, turn, rows, width, dtype):
        return self._view(turn % 2, rows, width, dtype)

    def send(self, turn, rows, width, dtype):
        return self._view(2 + turn % 2, rows, width, dtype)


class Stream:
    """Streams rows along one direction of the edges.

    own: Block of edges between own nodes; halo: one Block per round; plan: HaloPlan; buffers: HaloBuffers.
    """

    def __init__(self, own, halo, plan, buffers, comm):
        self.own, self.halo, self.plan, self.buffers, self.comm = own, halo, plan, buffers, comm

    def __call__(self, x, scale=None, kind="halo"):
        """Yield (block, rows, scale) for the own block and every group of rounds. Collective: exhaust it on all ranks.

        x: (n_p, F) own rows, contiguous. scale: (n_p,) factors of the rows, or None; remote rows arrive already scaled,
        and then the scale that is yielded is None. kind: the ledger's name for the traffic.
        """
        groups = coalesce(self.plan.rounds, self.buffers.cap(x.shape[1] * x.dtype.itemsize))
        flight = self._begin(0, groups, x, scale, kind)
        yield self.own, x, scale
        for turn, group in enumerate(groups):
            rows = self._finish(flight, kind)
            flight = self._begin(turn + 1, groups, x, scale, kind, still_sending=flight[2])
            first = self.plan.starts[group[0]]
            for index in group:
                start, stop = self.plan.starts[index : index + 2] - first
                if stop > start:
                    yield self.halo[index], rows[start:stop], None
        if groups:
            self.comm.wait(flight[2], kind)

    def _begin(self, turn, groups, x, scale, kind, still_sending=()):
        """Post the receives of one group of rounds, pack and post its sends. Returns (rows, receives, sends).

        `still_sending` are the sends of the turn before, which use the other buffer; they are finished with this
        turn's.
        """
        if turn == len(groups):
            return None, [], still_sending
        segments = merge(segment for index in groups[turn] for segment in self.plan.rounds[index])
        width, plan = x.shape[1], self.plan
        rows = self.buffers.receive(turn, sum(plan.received(s) for s in segments), width, x.dtype)
        receives, sends, at = [], [], 0
        for segment in segments:
            count = plan.received(segment)
            if count:
                receives.append(
                    self.comm.irecv(rows[at : at + count], plan.source(segment.offset), turn & 0x7FFF, kind)
                )
                at += count
        packed = self.buffers.send(turn, sum(len(plan.sent(s)) for s in segments), width, x.dtype)
        at = 0
        for segment in segments:
            wanted = plan.sent(segment)
            if len(wanted):
                part = packed[at : at + len(wanted)]
                kernels.pack(part, x, wanted, scale)
                sends.append(self.comm.isend(part, plan.dest(segment.offset), turn & 0x7FFF, kind))
                at += len(wanted)
        self.comm.wait(still_sending, kind)
        self.comm.progress(receives)
        self.comm.progress(sends)
        return rows, receives, sends

    def _finish(self, flight, kind):
        rows, receives, sends = flight
        self.comm.wait(receives, kind)
        return rows
