"""Features that are stored dense but are mostly zeros (bags of words, one-hot types) travel as their entries.

They are exchanged once in a run. For wide features that is most of the traffic of a schedule such as `lazy`. So the
ranks count when they plan. If the entries of all sent rows, with their columns, are fewer bytes than the rows, the rows
go as entries. A message then has a header: for each row the number of its entries and, if rows are scaled, its factor.
Its body has columns and values, without values if all entries of the graph are equal. If the entries of a message would
be more bytes than its rows, the rows are its body. So a round never takes more memory than its rows.

The received numbers are the same as in dense rows: a sender of rows scales them by the same product.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from hpcgnn.comm import Communicator
from hpcgnn.exchange.edges import EdgesT, Part
from hpcgnn.exchange.plan import HaloPlan
from hpcgnn.exchange.rounds import Segment
from hpcgnn.exchange.stream import Returns, Rows, RowStream, Stream

# Rows that are counted at a time: the mask of all of them would take a fourth of the features' memory.
_TILE = 4096


@dataclass(frozen=True)
class Compact:
    """How the rows of the features travel as entries. value: of all entries of the graph, or None if they differ."""

    value: float | None


def agree_on_compact(features: torch.Tensor, plan: HaloPlan, comm: Communicator) -> Compact | None:
    """A Compact, the same on all ranks, or None where dense rows (n_p, F) are fewer bytes. Collective (`plan`)."""
    if comm.size == 1:
        return None
    counts, ends = np.zeros(len(features), np.int64), torch.full((2,), -float("inf"), dtype=torch.float64)
    for first in range(0, len(features), _TILE):
        rows = features[first : first + _TILE]
        part = (rows.float() if rows.dtype == torch.bfloat16 else rows).numpy()
        present = part != 0
        counts[first : first + _TILE] = np.add.reduce(present.view(np.uint8), 1, np.int64)
        # Once two entries differ, it does not matter what the others are.
        if part.size and -ends[0] >= ends[1]:
            ends = torch.maximum(ends, _extremes(part, present))
    comm.allreduce_(ends, "plan", "max")
    alike = bool(-ends[0] == ends[1])
    sent = plan.num_boundary, int(counts[plan.send_rows.numpy()].sum())
    total, entries = comm.total(torch.tensor(sent, dtype=torch.float64), "plan").tolist()
    size = torch.promote_types(features.dtype, torch.float32).itemsize  # as they travel
    header = 4 + size
    if total * header + entries * _entry_bytes(size, alike) >= total * features.shape[1] * size:
        return None
    return Compact(float(ends[1]) if alike else None)


def _extremes(part: np.ndarray, present: np.ndarray) -> torch.Tensor:
    """float64 (2,): -the least and the largest stored entry; -infinity twice if there are none."""
    low, high = part.min(), part.max()
    if low == 0 or high == 0:
        entries = part[present]
        if len(entries) == 0:
            return torch.full((2,), -float("inf"), dtype=torch.float64)
        low, high = entries.min(), entries.max()
    return torch.tensor([-float(low), float(high)], dtype=torch.float64)


def _entry_bytes(size: int, alike: bool) -> int:
    return 4 if alike else 4 + size


class CompactStream(RowStream[EdgesT]):
    """A Stream (see stream.py) of constant rows that travel as their entries, one round at a time.

    Rows are exchanged once, so two rounds on their way would gain nothing.
    """

    def __init__(self, stream: Stream[EdgesT], compact: Compact) -> None:
        self._stream, self._compact = stream, compact
        self.own, self.plan, self.edges = stream.own, stream.plan, stream.edges
        self.wire, self.copies, self.buffers = stream.wire, False, stream.buffers

    def __call__(self, rows: Rows, kind: str, returns: Returns | None = None) -> Iterator[Part[EdgesT]]:
        x, scale = rows.x, rows.scale
        yield from self.edges.split(Part(self.own, x, scale), rows.interior)
        for index, segments in enumerate(self.plan.rounds):
            arrived = self._exchange(x, scale, segments, kind)
            if len(arrived):
                yield from self.edges.split(Part(self._stream.halo[index], arrived), rows.interior)

    def _exchange(
        self, x: torch.Tensor, scale: torch.Tensor | None, segments: Sequence[Segment], kind: str
    ) -> torch.Tensor:
        """The halo's rows of a round, dense."""
        comm, plan, packed, incoming = self._stream.comm, self.plan, [], []
        # Of what travels: rows in a narrow type are widened before.
        like = x.new_empty(0, x.shape[1], dtype=torch.promote_types(x.dtype, torch.float32))
        for segment in segments:
            first, last = plan.sent(segment)
            if last > first:
                packed.append(
                    (plan.dest(segment.offset), *self._pack(x, scale, plan.send_rows[first:last].long(), like.dtype))
                )
            if count := plan.received(segment):
                header = torch.empty(count * self._header_bytes(like, scale is not None), dtype=torch.uint8)
                incoming.append((plan.source(segment.offset), count, header))
        headers = [(source, header) for source, _, header in incoming]
        comm.exchange([(dest, header) for dest, header, _ in packed], headers, kind).finish()
        bodies = [
            torch.empty(self._body_bytes(like, self._lengths(like, scale is not None, header)), dtype=torch.uint8)
            for _, _, header in incoming
        ]
        outgoing = [(dest, body) for dest, _, body in packed if len(body)]
        comm.exchange(
            outgoing, [(s, body) for (s, _, _), body in zip(incoming, bodies, strict=True) if len(body)], kind
        ).finish()
        rows = like.new_zeros(sum(count for _, count, _ in incoming), x.shape[1])
        for part, (_, _, header), body in zip(
            rows.split([count for _, count, _ in incoming]), incoming, bodies, strict=True
        ):
            self._unpack(part, scale is not None, header, body)
        return rows

    def _pack(
        self, x: torch.Tensor, scale: torch.Tensor | None, sent: torch.Tensor, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(header, body) of these own rows, as bytes. dtype: as of the numbers."""
        rows = x[sent].to(dtype)
        present = rows != 0
        lengths = present.sum(1).to(torch.int32)
        entry = _entry_bytes(rows.element_size(), self._compact.value is not None)
        if int(lengths.sum()) * entry < rows.nbytes:
            values = [] if self._compact.value is not None else [rows[present]]
            body = [*values, present.nonzero()[:, 1].to(torch.int32)]
        else:
            body, lengths = [rows], torch.full_like(lengths, -1)
        factors = [] if scale is None else [scale[sent]]
        return _as_bytes([*factors, lengths]), _as_bytes(body)

    def _unpack(self, out: torch.Tensor, scaled: bool, header: torch.Tensor, body: torch.Tensor) -> None:
        count, width = out.shape
        lengths = self._lengths(out, scaled, header)
        if int(lengths.min()) < 0:
            out.copy_(body.view(out.dtype).view(count, width))
        else:
            entries, value = int(lengths.sum()), self._compact.value
            stored = 0 if value is not None else entries * out.element_size()
            columns = body[stored:].view(torch.int32).long()
            place = torch.repeat_interleave(torch.arange(count), lengths.long())
            out[place, columns] = (
                body[:stored].view(out.dtype) if value is None else torch.tensor(value, dtype=out.dtype)
            )
        if scaled:
            out.mul_(header[: count * out.element_size()].view(out.dtype)[:, None])

    @staticmethod
    def _header_bytes(x: torch.Tensor, scaled: bool) -> int:
        """Of one row."""
        return 4 + x.element_size() if scaled else 4

    def _lengths(self, x: torch.Tensor, scaled: bool, header: torch.Tensor) -> torch.Tensor:
        """int32, the entries of each row; -1 where the body has dense rows."""
        count = len(header) // self._header_bytes(x, scaled)
        return header[len(header) - 4 * count :].view(torch.int32)

    def _body_bytes(self, x: torch.Tensor, lengths: torch.Tensor) -> int:
        if int(lengths.min()) < 0:
            return len(lengths) * x.shape[1] * x.element_size()
        return int(lengths.sum()) * _entry_bytes(x.element_size(), self._compact.value is not None)


def _as_bytes(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """The tensors one after another, the widest numbers first, so that none is misaligned."""
    return torch.cat([part.contiguous().reshape(-1).view(torch.uint8) for part in parts])
