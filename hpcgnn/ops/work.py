"""In which order the edges of a rank are computed: one schedule for all operators that sum over them.

Interior rows have all their edges in the own block. Their sums are complete at once and need no message, so they fill
the time in which messages are on their way. The sums of the other rows are complete when the last message has come.
"""

from collections.abc import Iterator
from typing import NamedTuple, cast

import torch

from hpcgnn.exchange.stream import Returns, Rows
from hpcgnn.graph.blocks import Block
from hpcgnn.ops.streams import EdgeStream, RowStream


class Work(NamedTuple):
    """Edges that can be computed now.

    Attributes:
        block: Block; its rows are numbered within the own rows `at`.
        complete: whether it has all edges of these rows.
        rows: (columns, F), the rows of its columns.
        scale: (columns,) their factors, or None.
        back: (columns, R), to which returns to the rows are added, or None.
    """

    block: Block
    at: slice
    complete: bool
    rows: torch.Tensor
    scale: torch.Tensor | None
    back: torch.Tensor | None


def work(
    stream: RowStream,
    rows: Rows,
    kind: str,
    returns: Returns | None = None,
    pieces: bool = False,
    interior: bool = True,
) -> Iterator[Work]:
    """Yield the Work of a stream of these rows; arguments as of a Stream. Collective: exhaust it on all ranks.

    interior: whether interior rows come by themselves, complete; else nothing is complete before the end.
    """
    # Whoever asks for interior rows gives an EdgeStream.
    for block, source, scale, back in stream(rows, kind, returns, pieces):
        if not interior:
            yield Work(block, slice(0, stream.own.num_rows), False, source, scale, back)
            continue
        for part, at, complete in cast(EdgeStream, stream).edges.parts(block):
            yield Work(part, at, complete, source, scale, back)
