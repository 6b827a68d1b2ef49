"""How many nodes there are: a number that an input states, or one more than the largest id in it. Neither is to be trusted."""

import numpy as np

from hpcgnn.errors import FormatError, GraphError

#: The square root of 2^63: edges are sorted by the number destination * nodes + source.
MOST_NODES = 3_037_000_499


def stated(value, where):
    """The one whole number, at least 0, that an array holds; FormatError, which names `where`, if it is something else."""
    value = np.asarray(value)
    if value.size == 1 and value.dtype.kind in "iuf":
        number = value.reshape(-1)[0]
        if np.isfinite(number) and number == np.rint(number) and 0 <= number < 2**62:
            return int(number)
    raise FormatError(f"{where} must be one whole number from 0, got {value.dtype}{list(value.shape)} {str(value)[:40]}")


def largest(*ids):
    """The largest of all ids, -1 if there are none. ids: integer arrays."""
    return max((int(each.max()) for each in ids if each.size), default=-1)


def check_count(num_nodes):
    """GraphError for a number of nodes that cannot be worked with."""
    if num_nodes < 1:
        raise GraphError("the graph has no nodes; expected at least one")
    if num_nodes > MOST_NODES:
        raise GraphError(
            f"the graph would have {num_nodes:,} nodes, more than {MOST_NODES:,}; node ids must be contiguous from 0 (edge "
            "lists: --relabel)"
        )
