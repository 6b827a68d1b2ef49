"""Features that are stored dense but are mostly zeros (bags of words, one-hot types) travel as their entries.

They are exchanged once in a run, and for wide features that is most of what a schedule such as `lazy` sends at all. So
the ranks count, when they plan: if the entries of all rows that travel, with their columns, are fewer bytes than the
rows, the rows go as entries. A message then has a header, for each row the number of its entries and, if rows are
scaled, its factor; and a body, columns and values. Values are left out where all entries of the graph are equal. A
message of which the entries would be more bytes than its rows has the rows as body, so that a round never takes more
memory than its rows do.

What arrives are the same numbers that dense rows would bring: entries times factor is how a sender scales rows, too.
"""

from dataclasses import dataclass

import torch

# Rows that are counted at a time: the mask of all of them would take a fourth of the features' memory.
_TILE = 4096


@dataclass(frozen=True)
class Compact:
    """How the rows of the features travel as entries. value: of all entries of the graph, or None if they differ."""

    value: float | None


def agree_on_compact(features, plan, comm):
    """A Compact, the same on all ranks, or None where dense rows (n_p, F) are fewer bytes. Collective (`plan`)."""
    if comm.size == 1:
        return None
    counts, ends = torch.zeros(len(features), dtype=torch.int64), torch.full((2,), -float("inf"), dtype=torch.float64)
    for first in range(0, len(features), _TILE):
        part = features[first : first + _TILE]
        counts[first : first + _TILE] = (part != 0).sum(1)
        entries = part[part != 0].double()
        if len(entries):
            ends = torch.maximum(ends, torch.stack([-entries.min(), entries.max()]))
    comm.allreduce_(ends, "plan", "max")
    alike = bool(-ends[0] == ends[1])
    entries = sum(int(counts[rows.long()].sum()) for rows in plan.send_rows)
    rows, entries = comm.total(torch.tensor([plan.num_boundary, entries], dtype=torch.float64), "plan").tolist()
    size = features.element_size()
    header = 4 + size
    if rows * header + entries * _entry_bytes(size, alike) >= rows * features.shape[1] * size:
        return None
    return Compact(float(ends[1]) if alike else None)


def _entry_bytes(size, alike):
    return 4 if alike else 4 + size


class CompactStream:
    """A Stream (see stream.py) of constant rows that travel as their entries, one round at a time: it serves what is
    exchanged once, so that nothing is gained by having two rounds on their way.
    """

    def __init__(self, stream, compact):
        self._stream, self._compact = stream, compact
        self.own, self.plan, self.edges = stream.own, stream.plan, stream.edges

    def __call__(self, rows, kind, returns=None, pieces=False):
        """Yield (block, rows, scale, None) for the own block, whole, and every round, as a Stream does. Collective."""
        x, scale = rows.x, rows.scale
        yield self.own, x, scale, None
        for index, segments in enumerate(self.plan.rounds):
            arrived = self._exchange(x, scale, segments, kind)
            if len(arrived):
                yield self._stream.halo[index], arrived, None, None

    def _exchange(self, x, scale, segments, kind):
        """The halo's rows of a round, dense."""
        comm, plan, packed, incoming = self._stream.comm, self.plan, [], []
        for segment in segments:
            if len(sent := plan.sent(segment)):
                packed.append((plan.dest(segment.offset), *self._pack(x, scale, sent.long())))
            if count := plan.received(segment):
                header = torch.empty(count * self._header_bytes(x, scale), dtype=torch.uint8)
                incoming.append((plan.source(segment.offset), count, header))
        headers = [(source, header) for source, _, header in incoming]
        comm.exchange([(dest, header) for dest, header, _ in packed], headers, kind).finish()
        bodies = [
            torch.empty(self._body_bytes(x, self._lengths(x, scale, header)), dtype=torch.uint8)
            for _, _, header in incoming
        ]
        outgoing = [(dest, body) for dest, _, body in packed if len(body)]
        comm.exchange(outgoing, [(s, body) for (s, _, _), body in zip(incoming, bodies) if len(body)], kind).finish()
        rows = x.new_zeros(sum(count for _, count, _ in incoming), x.shape[1])
        for part, (_, _, header), body in zip(rows.split([count for _, count, _ in incoming]), incoming, bodies):
            self._unpack(part, scale is not None, header, body)
        return rows

    def _pack(self, x, scale, sent):
        """(header, body) of these own rows, as bytes."""
        rows = x[sent]
        present = rows != 0
        lengths = present.sum(1).to(torch.int32)
        entry = _entry_bytes(x.element_size(), self._compact.value is not None)
        if int(lengths.sum()) * entry < rows.nbytes:
            values = [] if self._compact.value is not None else [rows[present]]
            body = [*values, present.nonzero()[:, 1].to(torch.int32)]
        else:
            body, lengths = [rows], torch.full_like(lengths, -1)
        factors = [] if scale is None else [scale[sent]]
        return _as_bytes([*factors, lengths]), _as_bytes(body)

    def _unpack(self, out, scaled, header, body):
        count, width = out.shape
        lengths = self._lengths(out, True if scaled else None, header)
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
    def _header_bytes(x, scale):
        """Of one row."""
        return 4 if scale is None else 4 + x.element_size()

    def _lengths(self, x, scale, header):
        """int32, the entries of each row; -1 where the body has dense rows."""
        count = len(header) // self._header_bytes(x, scale)
        return header[len(header) - 4 * count :].view(torch.int32)

    def _body_bytes(self, x, lengths):
        if int(lengths.min()) < 0:
            return len(lengths) * x.shape[1] * x.element_size()
        return int(lengths.sum()) * _entry_bytes(x.element_size(), self._compact.value is not None)


def _as_bytes(parts):
    """The tensors one after another, the widest numbers first, so that none is misaligned."""
    return torch.cat([part.contiguous().reshape(-1).view(torch.uint8) for part in parts])
