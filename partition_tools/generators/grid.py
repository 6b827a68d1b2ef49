"""A grid of any dimension: nodes have positions, and edges to their neighbours along each axis, in both directions.

The last axis runs fastest, as in numpy: an array (T, *shape) of a field is a field of the nodes when its axes are
joined. Its fields are added by `python -m partition_tools snapshots`.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from hpcgnn.errors import ConfigError
from partition_tools.generators.drawing import EdgeColumn
from partition_tools.generators.spec import option
from partition_tools.graph.edges import index_dtype
from partition_tools.graph.raw import RawGraph
from partition_tools.workspace.scratch import Scratch

NAME = "grid"


def distances(text: str) -> tuple[float, ...]:
    """Numbers between commas. Raises ValueError."""
    return tuple(map(float, text.split(",")))


def lengths(text: str) -> tuple[int, ...]:
    """Whole numbers between commas. Raises ValueError."""
    return tuple(map(int, text.split(",")))


@dataclass(frozen=True)
class GridSpec:
    """Parameters of a grid. Raises ConfigError."""

    shape: tuple[int, ...] = field(metadata={"help": "nodes along each axis, such as 64,64,32", "read": lengths})
    spacing: tuple[float, ...] = option((1.0,), "distance of neighbours, on all axes or on each", read=distances)
    periodic: bool = option(False, "join the ends of each axis")

    def __post_init__(self) -> None:
        least = 3 if self.periodic else 1
        if not self.shape or min(self.shape) < least:
            ends = ", whose ends are not neighbours already" if self.periodic else ""
            raise ConfigError(f"shape must have at least {least} nodes along each axis{ends}, got {self.shape}")
        if len(self.spacing) not in (1, len(self.shape)) or not all(0 < each < math.inf for each in self.spacing):
            raise ConfigError(
                f"spacing must be one number above 0, or one for each of {len(self.shape)} axes, got {self.spacing}"
            )

    @property
    def nodes(self) -> int:
        return math.prod(self.shape)

    @property
    def edges_along(self) -> list[int]:
        """Edges along each axis, in one direction."""
        return [self.nodes if self.periodic else self.nodes // length * (length - 1) for length in self.shape]

    @property
    def num_edges(self) -> int:
        """Edges in one direction."""
        return sum(self.edges_along)


class GridPosition:
    """Array-like float64 (n, D): the positions of the nodes, computed when they are read."""

    def __init__(self, spec: GridSpec) -> None:
        self.spec, self.shape, self.dtype = spec, (spec.nodes, len(spec.shape)), np.dtype(np.float64)

    def __getitem__(self, rows: slice) -> np.ndarray:
        places = np.unravel_index(np.arange(*rows.indices(self.shape[0])), self.spec.shape)
        return np.stack(places, axis=1) * np.array(self.spec.spacing)


def generate(spec: GridSpec, scratch: Scratch) -> RawGraph:
    """The `RawGraph` of a grid. Edges and positions are computed when they are read."""
    begins, dtype = np.cumsum([0, *spec.edges_along]), index_dtype(spec.nodes)

    def ends(start: int, stop: int, far: bool) -> np.ndarray:
        """Those of some edges at the larger place of their axis (far), or at the smaller."""
        found = []
        for axis, length in enumerate(spec.shape):
            numbers = np.arange(max(start, begins[axis]), min(stop, begins[axis + 1])) - begins[axis]
            along = list(spec.shape)
            along[axis] = length if spec.periodic else max(length - 1, 1)
            places = list(np.unravel_index(numbers, along))
            places[axis] = (places[axis] + far) % length
            found.append(np.ravel_multi_index(places, spec.shape).astype(dtype))
        return np.concatenate(found)

    count = spec.num_edges
    return RawGraph(
        src=EdgeColumn(count, dtype, True, lambda start, stop, reverse: ends(start, stop, reverse)),
        dst=EdgeColumn(count, dtype, True, lambda start, stop, reverse: ends(start, stop, not reverse)),
        num_nodes=spec.nodes,
        source=NAME,
        position=GridPosition(spec),
    )
