"""Rows on their way: feature columns are narrowed when they are packed, and widened when they are used.

The halo is most of a job's traffic, and a feature needs fewer bits to travel than in computing. The leading columns of
a row are features (or their gradients) and may be narrowed. The others (logits, log-sum-exps, the inputs of a node's
softmax) travel in the computing dtype. bf16 is rounded to the nearest. int8 is between ± the largest of its row, and
rounded at random (kernels/coding.py). The place in the run keys the draws, so a run can be repeated.

The rows of one message lie as [wide columns | factors | narrow columns], each part by itself. So none is misaligned and
no byte is padding. The messages of a turn lie one after another in one buffer, with known places of lanes and rows.
"""

import bisect
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch

from hpcgnn import kernels
from hpcgnn.comm import Message
from hpcgnn.exchange.nodes import Lane
from hpcgnn.exchange.send_matrix import Scaled, SendMatrix

#: name of --halo-dtype -> the type of narrow numbers; fp32 stands for the run's own precision. int8 is rounded at
#: random, with a factor (float32) of its row.
NARROW: dict[str, torch.dtype | None] = {"fp32": None, "bf16": torch.bfloat16, "int8": torch.int8}


def rounds_at_random(name: str) -> bool:
    """Whether this --halo-dtype rounds at random."""
    return NARROW[name] == torch.int8


class RowFormat(NamedTuple):
    """The form of the rows of one stream.

    Attributes:
        width: number of columns.
        dtype: computing dtype.
        narrow: the number of columns, from the first, that are narrowed to `kind`.
        kind: None if none are.
    """

    width: int
    narrow: int
    dtype: torch.dtype
    kind: torch.dtype | None = None

    @property
    def row_bytes(self) -> int:
        """Bytes of a row as it is sent."""
        return sum(self._part_bytes)

    @property
    def widened_bytes(self) -> int:
        """Bytes per row of the copy that it takes to use the rows: none where they are used as they came."""
        return self.width * self.dtype.itemsize if self.narrow else 0

    @property
    def _part_bytes(self) -> tuple[int, int, int]:
        """Of a row's wide numbers, of its factor, and of its narrow numbers."""
        narrow = 0 if self.kind is None else self.narrow * self.kind.itemsize
        factor = torch.float32.itemsize if self.kind == torch.int8 else 0
        return (self.width - self.narrow) * self.dtype.itemsize, factor, narrow

    def message_bytes(self, rows: int) -> int:
        """Bytes of a message of `rows` rows in a buffer: its own, and padding that aligns the next one."""
        unit = self.dtype.itemsize
        return -(-rows * self.row_bytes // unit) * unit

    def buffer_bytes(self, lanes: Iterable[Lane]) -> int:
        """Bytes of the messages of these lanes, one after another."""
        return sum(self.message_bytes(lane.rows) for lane in lanes)

    def parts(self, message: torch.Tensor, rows: int) -> tuple[torch.Tensor | None, torch.Tensor, torch.Tensor | None]:
        """(factors (rows, 1) or None, wide (rows, width − narrow), narrow ones or None) of a message: views."""
        # Numbers of eight bytes come first: factors of four before them would leave them misaligned.
        sizes = [rows * part for part in self._part_bytes]
        wide, factors, narrow = message[: sum(sizes)].split(sizes)
        return (
            factors.view(torch.float32).view(rows, 1) if self.kind == torch.int8 else None,
            wide.view(self.dtype).view(rows, self.width - self.narrow),
            None if self.kind is None else narrow.view(self.kind).view(rows, self.narrow),
        )


class RowCodec:
    """The choice of --halo-dtype, and its state.

    Attributes:
        name: a key of NARROW.
        ids: int64 (n_p,), the original ids of own nodes, for random rounding.
        key: number -> key of the rounding of the number-th stream of the present epoch, for random rounding.
        at_random: whether it rounds at random.
        drawn: number of streams of this epoch so far.
    """

    def __init__(
        self,
        name: str = "fp32",
        ids: torch.Tensor | None = None,
        key: Callable[[int], int] = int,
    ) -> None:
        self.name, self.kind, self._key, self.at_random = name, NARROW[name], key, rounds_at_random(name)
        self.ids = torch.empty(0, dtype=torch.int64) if ids is None else ids
        self.drawn = 0

    def begin_epoch(self, epoch: int) -> None:
        """Count streams anew."""
        self.drawn = 0

    def next_draw(self) -> int:
        """The key of the next stream's rounding."""
        self.drawn += 1
        return self._key(self.drawn) if self.at_random else 0

    def form(self, width: int, narrow: int, dtype: torch.dtype) -> RowFormat:
        """The RowFormat of rows of `width` columns.

        They are narrowed only if that saves at least a fourth of the widened copy, which takes communication memory
        too.
        """
        plain = RowFormat(width, 0, dtype)
        if self.kind is None or not narrow:
            return plain
        form = RowFormat(width, narrow, dtype, self.kind)
        return form if form.message_bytes(1) + -(-form.widened_bytes // 4) <= plain.row_bytes else plain

    def encode(
        self,
        message: torch.Tensor,
        form: RowFormat,
        own: Scaled,
        sent: SendMatrix,
        draw: int,
        *place: int,
        ids: torch.Tensor | None = None,
    ) -> None:
        """Write the sent ones of own rows, and sums of them, as one message (bytes).

        Args:
            draw: key of the rounding.
            place: of the message. Among sums, its key and a sum's number in the message take the place of a row's id.
            ids: int64, original ids of the own rows (None: those of the RowCodec).
        """
        key, dtype = kernels.stream_key(draw, *place), form.dtype
        ids = self.ids if ids is None else ids
        if sent.sums is None:
            key, dtype = draw, _wide(form.dtype)
        for first, rows in sent.pieces(own, dtype):
            known = sent.sums is None and self.at_random
            at = sent.rows[first : first + len(rows)].long()
            encode(message, form, rows, key, (sent.count, first), ids[at] if known else None)


def encode(
    message: torch.Tensor,
    form: RowFormat,
    rows: torch.Tensor,
    draw: int,
    place: tuple[int, int] | None = None,
    ids: torch.Tensor | None = None,
) -> None:
    """Write rows (m, F) as one message (bytes).

    Args:
        draw: key of the rounding.
        place: (rows of the message, the first of these); None: it has these alone.
        ids: int64 (m,), original ids, which key the rounding; None: the numbers in the message do.
    """
    total, begin = place or (len(rows), 0)
    factors, wide, narrow = form.parts(message, total)
    out, features = slice(begin, begin + len(rows)), rows[:, : form.narrow]
    wide[out] = rows[:, form.narrow :]
    if factors is not None and narrow is not None:
        numbers = torch.arange(out.start, out.stop) if ids is None else ids
        kernels.narrow(narrow[out], factors[out], features.to(_wide(features.dtype)), numbers, draw)
    elif narrow is not None:
        narrow[out] = features


def _wide(dtype: torch.dtype) -> torch.dtype:
    """The type of at least 32 bits for numbers of a type."""
    return torch.promote_types(dtype, torch.float32)


def decode(out: torch.Tensor, form: RowFormat, message: torch.Tensor, rows: int, first: int) -> None:
    """Rows first … first + len(out) of a message of `rows` rows, widened into out (m, width)."""
    piece = slice(first, first + len(out))
    factors, wide, narrow = form.parts(message, rows)
    out[:, form.narrow :] = wide[piece]
    if factors is not None and narrow is not None:
        kernels.widen(out[:, : form.narrow], narrow[piece], factors[piece])
    elif narrow is not None:
        out[:, : form.narrow] = narrow[piece]


class MessageGroup:
    """The messages of one turn in one direction, one after another in one buffer, all of one RowFormat.

    Attributes:
        lanes: the Lane of each message.
        parts: the bytes of each.
        starts: where each one's rows begin among those of all, and the number of all.
        rows: (rows, width) of all, where none is narrowed; else None.
    """

    def __init__(self, form: RowFormat, lanes: Sequence[Lane], memory: torch.Tensor) -> None:
        """memory: bytes, of which the first ones are taken."""
        self.form, self.lanes = form, lanes
        self.starts = [0, *itertools.accumulate(lane.rows for lane in lanes)]
        sizes = [form.message_bytes(lane.rows) for lane in lanes]
        buffer = memory[: sum(sizes)]
        cut = zip(lanes, buffer.split(sizes), strict=True)
        self.parts = [part[: lane.rows * form.row_bytes] for lane, part in cut]
        self.rows = None if form.narrow else buffer.view(form.dtype).view(self.starts[-1], form.width)

    def leaving(self, rank: int) -> list[Message]:
        """Those along the lanes that this rank sends, for the other end; none of rows without columns."""
        pairs = zip(self.lanes, self.parts, strict=True) if self.form.row_bytes else ()
        return [(lane.receiver, part) for lane, part in pairs if lane.sender == rank]

    def arriving(self, rank: int) -> list[Message]:
        """Those along the lanes that this rank receives, likewise."""
        pairs = zip(self.lanes, self.parts, strict=True) if self.form.row_bytes else ()
        return [(lane.sender, part) for lane, part in pairs if lane.receiver == rank]

    def read(self, start: int, stop: int, memory: torch.Tensor) -> torch.Tensor:
        """(stop − start, F): some rows of all. Narrow ones are widened in memory (bytes), and valid until it is used
        again.
        """
        if self.rows is not None:
            return self.rows[start:stop]
        form, number = self.form, bisect.bisect_right(self.starts, start) - 1
        out = memory[: (stop - start) * form.widened_bytes].view(form.dtype).view(stop - start, form.width)
        while number < len(self.parts) and self.starts[number] < stop:
            before, after = self.starts[number : number + 2]
            first, last = max(start, before), min(stop, after)
            decode(out[first - start : last - start], form, self.parts[number], after - before, first - before)
            number += 1
        return out

    def add(self, total: torch.Tensor, index: torch.Tensor, place: torch.Tensor | None, memory: torch.Tensor) -> None:
        """Add rows to rows index int32 (m,) of total (n, R), in their order.

        place: int32 (m,), increasing, which ones; None: all. memory: see `read`.
        """
        distinct = len(self.lanes) == 1
        if self.rows is not None:
            kernels.add_rows(total, index, self.rows, place=place, distinct=distinct)
            return
        # Only rows that follow each other are widened together: those between are other ranks'.
        cuts = [] if place is None else (1 + (place.diff() != 1).nonzero().squeeze(1)).tolist()
        step = max(1, len(memory) // self.form.widened_bytes)
        for begin, end in itertools.pairwise([0, *cuts, len(index)]):
            before = 0 if place is None or begin == end else int(place[begin]) - begin
            for first in range(begin, end, step):
                last = min(first + step, end)
                rows = self.read(before + first, before + last, memory)
                kernels.add_rows(total, index[first:last], rows, distinct=distinct)
