"""Rows on their way: feature columns are narrowed when they are packed, and widened when they are used.

The halo is most of a job's traffic, and a feature needs fewer bits to travel than in computing. The leading columns of
a row are features (or their gradients) and may be narrowed. The others (logits, log-sum-exps, the inputs of a node's
softmax) travel in the computing dtype. bf16 is rounded to the nearest. int8 is between ± the largest of its row, and
rounded at random (kernels/coding.py). The place in the run keys the draws, so a run can be repeated.

A row on its way is [wide columns | factor | narrow columns | bytes that align the next], and the rows of a turn's
messages lie one after another in one buffer. So each part of all of them is one strided matrix, and a turn is written,
read and added by the same few calls for any number of messages.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch

from hpcgnn import kernels
from hpcgnn.comm.communicator import Message
from hpcgnn.exchange.peers import Lanes
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
        unit = max(self.dtype.itemsize, torch.float32.itemsize if self.kind == torch.int8 else 1)
        return -(-self._ends[-1] // unit) * unit

    @property
    def widened_bytes(self) -> int:
        """Bytes per row of the copy that it takes to use the rows: none where they are used as they came."""
        return self.width * self.dtype.itemsize if self.narrow else 0

    @property
    def _ends(self) -> tuple[int, int, int]:
        """The bytes of a row up to its factor, its narrow numbers, and its end."""
        wide = (self.width - self.narrow) * self.dtype.itemsize
        factor = torch.float32.itemsize if self.kind == torch.int8 else 0
        at = -(-wide // factor) * factor if factor else wide
        return at, at + factor, at + factor + (0 if self.kind is None else self.narrow * self.kind.itemsize)

    def parts(self, rows: torch.Tensor) -> "RowParts":
        """The parts of rows on their way, uint8 (m, row_bytes): views."""
        at, first, end = self._ends
        if end == 0:  # of rows without columns there is nothing to view
            return RowParts(torch.empty(len(rows), 0, dtype=self.dtype))
        return RowParts(
            rows[:, : (self.width - self.narrow) * self.dtype.itemsize].view(self.dtype),
            None if self.kind is None else rows[:, first:end].view(self.kind),
            rows[:, at:first].view(torch.float32) if self.kind == torch.int8 else None,
        )


class RowParts(NamedTuple):
    """Rows on their way: wide (m, width − narrow), narrow (m, narrow) or None, factors float32 (m, 1) or None."""

    wide: torch.Tensor
    narrow: torch.Tensor | None = None
    factors: torch.Tensor | None = None

    def of(self, rows: slice) -> "RowParts":
        """Those of some rows."""
        narrow, factors = (None if each is None else each[rows] for each in self[1:])
        return RowParts(self.wide[rows], narrow, factors)

    def write(self, rows: torch.Tensor, key: int, ids: torch.Tensor) -> None:
        """Write rows (m, F). key, ids int64 (m,): of random rounding."""
        if self.narrow is None:
            self.wide.copy_(rows)
            return
        width = self.narrow.shape[1]
        self.wide.copy_(rows[:, width:])
        if self.factors is None:
            self.narrow.copy_(rows[:, :width])
        else:
            kernels.narrow(self.narrow, self.factors, rows[:, :width].to(_wide(rows.dtype)), ids, key)

    def read(self, out: torch.Tensor) -> torch.Tensor:
        """out (m, F): the rows, widened."""
        width = 0 if self.narrow is None else self.narrow.shape[1]
        out[:, width:] = self.wide
        if self.narrow is not None and self.factors is None:
            out[:, :width] = self.narrow
        elif self.narrow is not None:
            kernels.widen(out[:, :width], self.narrow, self.factors)
        return out


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
        return form if form.row_bytes + -(-form.widened_bytes // 4) <= plain.row_bytes else plain


def encode(out: RowParts, own: Scaled, sent: SendMatrix, key: int, ids: torch.Tensor | None = None) -> None:
    """Write the sent ones of own rows, and sums of them, as out.

    Args:
        key: of random rounding.
        ids: int64, of the own rows, which key it too; None: the places of the sent rows do.
    """
    if out.narrow is None:
        sent.pack(out.wide, own)
        return
    dtype = out.wide.dtype if sent.sums is not None else _wide(out.wide.dtype)
    for first, rows in sent.pieces(own, dtype):
        last = first + len(rows)
        numbers = torch.arange(first, last) if ids is None else ids[sent.rows[first:last].long()]
        out.of(slice(first, last)).write(rows, key, numbers)


def _wide(dtype: torch.dtype) -> torch.dtype:
    """The type of at least 32 bits for numbers of a type."""
    return torch.promote_types(dtype, torch.float32)


class MessageGroup:
    """The messages of one turn in one direction, one after another in one buffer, all of one RowFormat.

    Attributes:
        lanes: the Lanes of the messages.
        rows: RowParts of all.
    """

    def __init__(self, form: RowFormat, lanes: Lanes, memory: torch.Tensor) -> None:
        """memory: bytes, of which the first ones are taken."""
        self.form, self.lanes, count = form, lanes, int(lanes.rows.sum())
        self._bytes = memory[: count * form.row_bytes].view(count, form.row_bytes)
        self.rows = form.parts(self._bytes)

    def messages(self, rank: int, leave: bool) -> list[Message]:
        """Those that this rank sends along the lanes (or receives), for the other end; none of rows without columns."""
        return self.lanes.messages(self._bytes, rank, leave) if self.form.row_bytes else []

    def read(self, start: int, stop: int, memory: torch.Tensor) -> torch.Tensor:
        """(stop − start, F): some rows of all. Narrow ones are widened in memory (bytes), and valid until it is used
        again.
        """
        some = self.rows.of(slice(start, stop))
        return some.wide if some.narrow is None else some.read(self._room(memory, stop - start))

    def add(self, total: torch.Tensor, index: torch.Tensor, place: torch.Tensor | None, memory: torch.Tensor) -> None:
        """Add rows to rows index int32 (m,) of total (n, R), in their order.

        place: int32 (m,), which ones; None: all. memory: see `read`.
        """
        distinct = len(self.lanes.rows) == 1
        if self.rows.narrow is None:
            kernels.add_rows(total, index, self.rows.wide, place=place, distinct=distinct)
            return
        step = max(1, len(memory) // self.form.widened_bytes)
        for first in range(0, len(index), step):
            last = min(first + step, len(index))
            some = self._bytes[first:last] if place is None else self._bytes.index_select(0, place[first:last])
            rows = self.form.parts(some).read(self._room(memory, last - first))
            kernels.add_rows(total, index[first:last], rows, distinct=distinct)

    def _room(self, memory: torch.Tensor, rows: int) -> torch.Tensor:
        """(rows, F) in memory (bytes)."""
        return memory[: rows * self.form.widened_bytes].view(self.form.dtype).view(rows, self.form.width)
