"""Rows on their way: feature columns are narrowed when they are packed, and widened when they are used.

The halo is most of a job's traffic, and a feature needs fewer bits to travel than in computing. The leading columns of
a row are features (or their gradients) and may be narrowed. The others (logits, log-sum-exps, the inputs of a node's
softmax) travel in the computing dtype.

The rows of one message lie as [wide columns | factors | narrow columns], each part by itself. So none is misaligned and
no byte is padding.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import torch

from hpcgnn import kernels
from hpcgnn.exchange.buffers import Lease
from hpcgnn.exchange.narrow import NARROW, Narrow, rounds_at_random
from hpcgnn.exchange.sending import Scaled, Sending

#: What a message is for: a rank, or the segment that it has the rows of.
Peer = TypeVar("Peer")
# Numbers that are converted at a time: their copies stay in the cache and are no part of the communication memory's
# account.
_PIECE = 1 << 15
# Rows whose ids are looked up at a time, likewise.
_ROWS = 1 << 12


@dataclass(frozen=True)
class Form:
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
    kind: Narrow | None = None

    @property
    def row_bytes(self) -> int:
        """Bytes of a row as it is sent."""
        return self._wide_bytes + (0 if self.kind is None else self.kind.factor_bytes + self._narrow_bytes)

    @property
    def widened_bytes(self) -> int:
        """Bytes per row of the copy that it takes to use the rows: none where they are used as they came."""
        return self.width * self.dtype.itemsize if self.narrow else 0

    @property
    def _wide_bytes(self) -> int:
        return (self.width - self.narrow) * self.dtype.itemsize

    @property
    def _narrow_bytes(self) -> int:
        return 0 if self.kind is None else self.narrow * self.kind.type.itemsize

    def message_bytes(self, rows: int) -> int:
        """Bytes of a message of `rows` rows in a buffer: its own, and padding that aligns the next one."""
        unit = self.dtype.itemsize
        return -(-rows * self.row_bytes // unit) * unit

    def parts(self, message: torch.Tensor, rows: int) -> tuple[torch.Tensor | None, torch.Tensor, torch.Tensor | None]:
        """(factors (rows, 1) or None, wide (rows, width − narrow), narrow ones or None) of a message: views."""
        kind = self.kind
        # Numbers of eight bytes come first: factors of four before them would leave them misaligned.
        wide_size = rows * self._wide_bytes
        wide = message[:wide_size].view(self.dtype).view(rows, self.width - self.narrow)
        if kind is None:
            return None, wide, None
        factors, narrow = message[wide_size : rows * self.row_bytes].split(
            [rows * kind.factor_bytes, rows * self._narrow_bytes]
        )
        beside = factors.view(torch.float32).view(rows, 1) if kind.at_random else None
        return beside, wide, narrow.view(kind.type).view(rows, self.narrow)


class Wire:
    """The choice of --halo-dtype, and its state.

    Attributes:
        name: a key of NARROW.
        ids: int64 (n_p,), the original ids of own nodes, for random rounding.
        key: number -> key of the rounding of the number-th stream of the present epoch, for random rounding.
        drawn: number of streams of this epoch so far.
    """

    def __init__(
        self,
        name: str = "fp32",
        ids: torch.Tensor | None = None,
        key: Callable[[int], int] | None = None,
    ) -> None:
        self.name, self.kind, self._key = name, NARROW[name], key
        self.ids = torch.empty(0, dtype=torch.int64) if ids is None else ids
        self.drawn = 0

    def begin_epoch(self, epoch: int) -> None:
        """Count streams anew."""
        self.drawn = 0

    def next_draw(self) -> int:
        """The key of the next stream's rounding."""
        self.drawn += 1
        if not rounds_at_random(self.name):
            return 0
        assert self._key is not None, "what is rounded at random needs keys"
        return self._key(self.drawn)

    def form(self, width: int, narrow: int, dtype: torch.dtype) -> Form:
        """The Form of rows of `width` columns.

        They are narrowed only if that saves at least a fourth of the widened copy, which takes communication memory
        too.
        """
        plain = Form(width, 0, dtype)
        if self.kind is None or not narrow:
            return plain
        form = Form(width, narrow, dtype, self.kind)
        return form if form.message_bytes(1) + -(-form.widened_bytes // 4) <= plain.row_bytes else plain

    def rounded(self, x: torch.Tensor) -> torch.Tensor:
        """x (n, F) in numbers that survive the way unchanged. For bf16 only."""
        return x if self.kind is None else x.to(self.kind.type).to(x.dtype)

    def encode(
        self,
        message: torch.Tensor,
        form: Form,
        x: torch.Tensor,
        draw: int,
        picked: tuple[torch.Tensor, torch.Tensor | None] | None = None,
        place: tuple[int, int] | None = None,
        ids: torch.Tensor | None = None,
    ) -> None:
        """Write rows of x (n, F) as one message (bytes). draw: key of the rounding.

        picked: (int32 (m,), the rows, their factors (n,) or None); None: all. place: (rows of the message, the first of
        these); None: it has these alone. ids: int64 (n,), original ids of the rows of x (None: own rows).
        """
        index, scale = picked or (None, None)
        count = (x if index is None else index).shape[0]  # len() of a tensor goes through Python
        total, first = place or (count, 0)
        at = slice(first, first + count)
        factors, wide, narrow = form.parts(message, total)
        if form.narrow < form.width:
            _take(wide[at], x[:, form.narrow :], index, scale)
        if narrow is None or form.kind is None:
            return
        narrow, features = narrow[at], x[:, : form.narrow]
        if form.kind.type == torch.bfloat16 and x.dtype == torch.float32:
            _take(narrow, features, index, scale)
            return
        if factors is not None:
            numbers = self.ids if ids is None else ids
            _round(narrow, factors[at], features, picked, draw, first, numbers)
            return
        step = max(1, _PIECE // form.narrow)
        for start in range(0, count, step):
            piece = slice(start, min(start + step, count))
            taken = features[piece] if index is None else features[index[piece].long()]
            if scale is not None and index is not None:
                taken = taken * scale[index[piece].long(), None]
            narrow[piece] = taken.to(form.kind.type)

    def encode_sent(
        self,
        message: torch.Tensor,
        form: Form,
        own: Scaled,
        sent: Sending,
        draw: int,
        *place: int,
        ids: torch.Tensor | None = None,
    ) -> None:
        """Write the sent ones of own rows, and sums of them, as one message. ids: see `encode`.

        draw: key of the rounding. Among sums the place in the message takes the place of a row's id.
        """
        if sent.sums is None:
            self.encode(message, form, own.x, draw, (sent.rows, own.scale), ids=ids)
            return
        key = kernels.stream_key(draw, *place)
        for first, rows in sent.pieces(own, form.dtype):
            self.encode(message, form, rows, key, place=(sent.count, first))


def decode(out: torch.Tensor, form: Form, message: torch.Tensor, rows: int, first: int) -> None:
    """Rows first … first + len(out) of a message of `rows` rows, widened into out (m, width)."""
    piece = slice(first, first + len(out))
    factors, wide, narrow = form.parts(message, rows)
    out[:, form.narrow :] = wide[piece]
    if narrow is None or form.kind is None:
        return
    if factors is not None:
        kernels.widen(out[:, : form.narrow], narrow[piece], factors[piece])
    else:
        out[:, : form.narrow] = narrow[piece]


def cut(buffer: torch.Tensor, counts: Iterable[tuple[Peer, int]], form: Form) -> list[tuple[Peer, torch.Tensor, int]]:
    """[(peer, its message, its rows)] of a buffer for messages of these many rows, for the peers that have rows."""
    sizes = [(peer, count, form.message_bytes(count)) for peer, count in counts]
    parts = buffer.split([size for _, _, size in sizes])
    return [
        (peer, part[: count * form.row_bytes], count)
        for (peer, count, _), part in zip(sizes, parts, strict=True)
        if count
    ]


def read_rows(
    messages: Iterable[tuple[Peer, torch.Tensor, int]], form: Form, start: int, stop: int, lease: Lease
) -> torch.Tensor:
    """(stop − start, F): rows start … stop of the messages of `cut`, one after another, widened in the lease's
    memory.
    """
    out = lease.widened((stop - start) * form.widened_bytes).view(form.dtype).view(stop - start, form.width)
    before = 0
    for _, message, count in messages:
        first, last = max(start, before), min(stop, before + count)
        if first < last:
            decode(out[first - start : last - start], form, message, count, first - before)
        before += count
    return out


def _take(out: torch.Tensor, x: torch.Tensor, index: torch.Tensor | None, scale: torch.Tensor | None) -> None:
    if index is None:
        out.copy_(x)
    else:
        kernels.pack(out, x, index, scale)


def _round(
    narrow: torch.Tensor,
    factors: torch.Tensor,
    x: torch.Tensor,
    picked: tuple[torch.Tensor, torch.Tensor | None] | None,
    draw: int,
    first: int,
    ids: torch.Tensor,
) -> None:
    """`kernels.narrow` by draws for the rows' original ids, or, if all are taken, for their places from `first` on."""
    if picked is None:
        kernels.narrow(narrow, factors, x, torch.arange(first, first + len(x)), draw)
        return
    index, scale = picked
    for start in range(0, len(index), _ROWS):
        piece = slice(start, min(start + _ROWS, len(index)))
        rows, at, factor = x, index[piece], scale
        taken = ids[at.long()]
        if x.dtype not in (torch.float32, torch.float64):
            rows = x.new_empty(len(at), x.shape[1], dtype=torch.float32)
            kernels.pack(rows, x, at)
            at, factor = torch.arange(len(at), dtype=torch.int32), None if scale is None else scale[at]
        kernels.narrow(narrow[piece], factors[piece], rows, taken, draw, at, factor)
