"""What each rank of a map will hold and do: bytes and relative work, foretold from its nodes, edges and halo rows.

The model is a network of GraphSAGE layers, each of one width. A rank holds the features of its nodes, its edges, and
for each layer a row per node, with gradients beside them; it aggregates over edges (a row read for each) and
multiplies rows of nodes by square matrices. This is for comparing ranks and maps, not for promising seconds: the
constants are the rates of one core of a common processor, and the transfer of halo rows is left out.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

LAYERS, WIDTH = 3, 256
FLOAT, INDEX = 4, 8  # bytes of a number; of an edge's index and of a row pointer
COPIES = 2  # of a layer's rows: activations and their gradients
MATRICES, PASSES = 2, 3  # of a layer: a node's own and its neighbours'; a product forwards and two backwards
EDGE_BYTES_PER_SECOND, FLOPS_PER_SECOND = 1.0e10, 5.0e10


@dataclass(frozen=True)
class RankForecast:
    """Of each rank, (P,): bytes int64, and seconds of an epoch float64 that only their ratios should be taken from."""

    bytes: np.ndarray
    seconds: np.ndarray


def rank_forecast(
    nodes: np.ndarray,
    edges: np.ndarray,
    halo_rows: np.ndarray,
    inputs: float,
    input_bytes: float,
    width: int = WIDTH,
    layers: int = LAYERS,
) -> RankForecast:
    """What ranks with so many nodes, in-edges and received halo rows, int (P,) each, hold and do in an epoch.

    inputs: features of a node that are not left out (of sparse ones the mean number of entries); input_bytes: what they
    take. One halo of one layer is held at a time, in rows of the widest layer.
    """
    nodes, edges, halo = (np.asarray(counts, np.float64) for counts in (nodes, edges, halo_rows))
    held = nodes * (input_bytes + INDEX) + edges * INDEX
    held += nodes * layers * width * FLOAT * COPIES + halo * max(width * FLOAT, input_bytes)
    gathered = edges * width * FLOAT * layers * 2  # forwards and backwards
    multiplied = nodes * (2.0 * width * MATRICES * PASSES) * (inputs + (layers - 1) * width)
    return RankForecast(held.astype(np.int64), gathered / EDGE_BYTES_PER_SECOND + multiplied / FLOPS_PER_SECOND)


def balance(values: np.ndarray) -> dict[str, Any]:
    """The mean, the largest and the largest over the mean (1.0 where all are 0) of one number per rank (P,)."""
    mean, largest = float(np.mean(values)), float(np.max(values))
    return asdict(Balance(mean, largest, largest / mean if mean else 1.0))


@dataclass(frozen=True)
class Balance:
    """Of one number per rank: the mean, the largest, and the imbalance, the largest over the mean."""

    mean: float
    largest: float
    imbalance: float
