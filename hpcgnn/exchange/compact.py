"""Features that are stored dense but are mostly zeros (bags of words, one-hot types) travel as their entries.

They are exchanged once in a run. For wide features that is most of the traffic of a schedule such as `lazy`. So the
ranks count when they plan. If the entries of all sent rows, with their columns, are fewer bytes than the rows, the rows
go as entries. A message then has a header: for each row the number of its entries and, if rows are scaled, its factor.
Its body has columns and values, without values if all entries of the graph are equal. If the entries of a message would
be more bytes than its rows, the rows are its body. So a round never takes more memory than its rows.

The received numbers are the same as in dense rows: a sender of rows scales them by the same product.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from hpcgnn.comm import Communicator
from hpcgnn.exchange.plan import HaloPlan
from hpcgnn.exchange.sending import Scaled
from hpcgnn.exchange.transfer import Transfer

# Rows that are counted at a time: the mask of all of them would take a fourth of the features' memory.
_TILE = 4096


@dataclass(frozen=True)
class Compact:
    """How the rows of the features travel as entries. value: of all entries of the graph, or None if they differ."""

    value: float | None

    def entry_bytes(self, size: int) -> int:
        """Bytes of an entry whose number has `size`."""
        return 4 if self.value is not None else 4 + size


def agree_on_compact(features: torch.Tensor, plan: HaloPlan, comm: Communicator) -> Compact | None:
    """A Compact, the same on all ranks, or None where dense rows (n_p, F) are fewer bytes. Collective (`plan`)."""
    if comm.size == 1:
        return None
    # ends: -the least and the largest entry.
    counts, ends = np.zeros(len(features), np.int64), torch.full((2,), -float("inf"), dtype=torch.float64)
    for first in range(0, len(features), _TILE):
        rows = features[first : first + _TILE]
        part = (rows.float() if rows.dtype == torch.bfloat16 else rows).numpy()
        present = part != 0
        counts[first : first + _TILE] = np.add.reduce(present.view(np.uint8), 1, np.int64)
        # Once two entries differ, it does not matter what the others are.
        if -ends[0] >= ends[1] and present.any():
            entries = part[present]
            ends = torch.maximum(ends, torch.tensor([-float(entries.min()), float(entries.max())], dtype=ends.dtype))
    comm.allreduce_(ends, "plan", "max")
    found = Compact(float(ends[1]) if bool(-ends[0] == ends[1]) else None)
    sent = plan.num_boundary, int(counts[plan.send_rows.numpy()].sum())
    total, entries_sent = comm.total(torch.tensor(sent, dtype=torch.float64), "plan").tolist()
    size = torch.promote_types(features.dtype, torch.float32).itemsize  # as they travel
    less = total * (4 + size) + entries_sent * found.entry_bytes(size) < total * features.shape[1] * size
    return found if less else None


class EntryTransfer(Transfer):
    """The rows of one round as their entries, without returns.

    Rows are exchanged once, so two rounds on their way would gain nothing: `finish` sends them.
    """

    def __init__(self, number: int, plan: HaloPlan, compact: Compact, comm: Communicator) -> None:
        self._plan, self._segments, self._compact, self.comm = plan, plan.rounds[number], compact, comm
        count, self.back = sum(map(plan.received, self._segments)), None
        self.places = [(number, 0, count)] if count else []
        self._rows = torch.empty(0)

    def begin(self, own: Scaled, draw: int, kind: str) -> None:
        """See Transfer."""
        self._own, self._kind = own, kind

    def sizes(self) -> dict[str, int]:
        """See Transfer; bytes are known when they are there."""
        return {}

    def rows(self, start: int, stop: int) -> torch.Tensor:
        """See Transfer; once, for nothing keeps them."""
        rows, self._rows = self._rows, self._rows[:0]
        return rows[start:stop]

    def finish(self) -> None:
        """Send and receive the headers, and then the bodies."""
        x, plan, packed, counts = self._own.x, self._plan, [], []
        for segment in self._segments:
            first, last = plan.sent(segment)
            if last > first:
                packed.append((plan.dest(segment.offset), *self._pack(plan.send_rows[first:last].long())))
            if count := plan.received(segment):
                counts.append((plan.source(segment.offset), count))
        # Rows in a narrow type are widened before they go.
        rows = x.new_zeros(sum(count for _, count in counts), x.shape[1], dtype=_travelling(x))
        header_bytes = 4 + (0 if self._own.scale is None else rows.element_size())
        headers = [(source, torch.empty(count * header_bytes, dtype=torch.uint8)) for source, count in counts]
        self._exchange_all([(dest, header) for dest, header, _ in packed], headers)
        lengths = [each[-4 * n :].view(torch.int32) for (_, each), (_, n) in zip(headers, counts, strict=True)]
        bodies = [(source, self._empty_body(rows, each)) for (source, _), each in zip(counts, lengths, strict=True)]
        self._exchange_all([(dest, body) for dest, _, body in packed], bodies)
        parts = rows.split([count for _, count in counts])
        for part, (_, header), each, (_, body) in zip(parts, headers, lengths, bodies, strict=True):
            self._unpack(part, header, each, body)
        self._rows = rows

    def _exchange_all(self, outgoing: list[tuple[int, torch.Tensor]], incoming: list[tuple[int, torch.Tensor]]) -> None:
        """Messages without bytes are left out: both ends know."""
        sent, received = ([each for each in messages if len(each[1])] for messages in (outgoing, incoming))
        self.comm.exchange(sent, received, self._kind).finish()

    def _pack(self, sent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(header, body) of these own rows, as bytes. Lengths of -1 say that the body has dense rows."""
        (x, scale, _), value = self._own, self._compact.value
        rows = x[sent].to(_travelling(x))
        present = rows != 0
        lengths = present.sum(1).to(torch.int32)
        if int(lengths.sum()) * self._compact.entry_bytes(rows.element_size()) < rows.nbytes:
            columns = present.nonzero()[:, 1].to(torch.int32)
            body = [columns] if value is not None else [rows[present], columns]
        else:
            body, lengths = [rows], torch.full_like(lengths, -1)
        return _as_bytes([lengths] if scale is None else [scale[sent], lengths]), _as_bytes(body)

    def _empty_body(self, rows: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        entries, size = int(lengths.sum()), rows.element_size()
        dense = len(lengths) * rows.shape[1] * size
        return torch.empty(self._compact.entry_bytes(size) * entries if entries >= 0 else dense, dtype=torch.uint8)

    def _unpack(self, out: torch.Tensor, header: torch.Tensor, lengths: torch.Tensor, body: torch.Tensor) -> None:
        (count, _), entries, value = out.shape, int(lengths.sum()), self._compact.value
        if entries < 0:
            out.copy_(body.view(out.dtype).view(out.shape))
        else:
            columns = body[len(body) - 4 * entries :].view(torch.int32).long()
            place = torch.repeat_interleave(torch.arange(count), lengths.long())
            stored = body[: len(body) - 4 * entries].view(out.dtype)
            out[place, columns] = stored if value is None else torch.tensor(value, dtype=out.dtype)
        if self._own.scale is not None:
            out.mul_(header[: count * out.element_size()].view(out.dtype)[:, None])


def _travelling(x: torch.Tensor) -> torch.dtype:
    """The type in which rows travel."""
    return torch.promote_types(x.dtype, torch.float32)


def _as_bytes(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """The tensors one after another, the widest numbers first, so that none is misaligned."""
    return torch.cat([part.contiguous().reshape(-1).view(torch.uint8) for part in parts])
