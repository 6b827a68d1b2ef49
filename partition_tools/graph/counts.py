"""How many nodes there are: a number that an input states, or one more than the largest id in it. Neither is to be
trusted.
"""

from collections.abc import Collection, Iterator

import numpy as np
from numpy.typing import ArrayLike

from hpcgnn.errors import FormatError, GraphError
from partition_tools.workspace.progress import Reporter

#: The square root of 2^63: edges are sorted by the number destination * nodes + source.
MOST_NODES = 3_037_000_499
BLOCK = 1 << 20
#: So many ids are named in a message.
FEW = 5


def stated(value: ArrayLike, where: str) -> int:
    """The one whole number, at least 0, that an array holds; FormatError, which names `where`, if it is something
    else.
    """
    value = np.asarray(value)
    if value.size == 1 and value.dtype.kind in "iuf":
        number = value.reshape(-1)[0]
        if np.isfinite(number) and number == np.rint(number) and 0 <= number < 2**62:
            return int(number)
    raise FormatError(
        f"{where} must be one whole number from 0, got {value.dtype}{list(value.shape)} {str(value)[:40]}"
    )


def whole(values: np.ndarray) -> np.ndarray | None:
    """Integers, or floats that are integers and exact, as integers; None for anything else."""
    if values.dtype.kind in "iu":
        return values
    if values.dtype.kind == "f" and np.isfinite(values).all() and (np.rint(values) == values).all():
        return values.astype(np.int64) if (np.abs(values) < 2**53).all() else None
    return None


def blocks(array: np.ndarray, length: int = BLOCK) -> Iterator[np.ndarray]:
    """The elements of a vector in blocks of bounded length: arrays made of a block are small, whatever is mapped."""
    for start in range(0, len(array), length):
        yield array[start : start + length]


def largest(*ids: np.ndarray) -> int:
    """The largest of all ids, -1 if there are none. ids: integer arrays."""
    return max((int(each.max()) for each in ids if each.size), default=-1)


def check_count(num_nodes: int) -> None:
    """GraphError for a number of nodes that cannot be worked with."""
    if num_nodes < 1:
        raise GraphError("the graph has no nodes; expected at least one")
    if num_nodes > MOST_NODES:
        raise GraphError(
            f"the graph would have {num_nodes:,} nodes, more than {MOST_NODES:,}; node ids must be contiguous from 0 "
            "(edge lists: --relabel)"
        )


def warn_of_gaps(ids: Collection[np.ndarray], num_nodes: int, remedy: str, reporter: Reporter) -> None:
    """Warn of the node ids 0..num_nodes-1 that never occur.

    The largest id has decided how many nodes there are. An id that never occurs makes an isolated node; many of them
    mean that the ids are no row numbers. ids: integer arrays.
    """
    if not num_nodes or min(each.min(initial=0) for each in ids) < 0:
        return
    if num_nodes <= 4 * sum(map(len, ids)):
        used = np.zeros(num_nodes, bool)
        for each in ids:
            for block in blocks(each):
                used[block] = True
        count, missing = int(np.count_nonzero(used)), np.flatnonzero(~used)[:FEW]
    else:
        used = np.unique(np.concatenate([np.unique(each) for each in ids]))
        count = len(used)
        missing = np.setdiff1d(np.arange(min(num_nodes, count + FEW)), used)[:FEW]
    if not 0 < count < num_nodes:
        return
    first = min(int(each.min()) for each in ids if each.size)
    if num_nodes - count == first:
        reporter.warn(f"the ids begin with {first}, and nodes 0..{first - 1} become isolated nodes; {remedy}")
        return
    some = ", ".join(f"{number:,}" for number in missing.tolist()) + (", ..." if num_nodes - count > FEW else "")
    reporter.warn(
        f"only {count:,} of the node ids 0..{num_nodes - 1:,} occur, and {num_nodes - count:,} become isolated nodes "
        f"({some}); {remedy}"
    )
