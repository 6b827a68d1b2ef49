"""Meshes that the package meshio reads: VTU, VTK, XDMF with its time series, Gmsh, Exodus.

Nodes are points. Edges are those of the cells: of a cell of second order they lead over the points on its edges. Fields
of points become snapshots. Fields of cells, and the cells themselves, are not kept.
"""

import importlib
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hpcgnn.errors import ConfigError, FormatError, GraphError
from hpcgnn.extras.meshes.arrival import MeshOptions, TimeByTime, mesh_edges, series_of_source
from hpcgnn.graphfile.field_series import FieldSeries
from hpcgnn.graphfile.schema import RowReader
from partition_tools.graph.raw import RawGraph
from partition_tools.workspace.progress import Reporter
from partition_tools.workspace.scratch import Scratch

NAME = "mesh"
OPTIONS = MeshOptions
#: {suffix: module of meshio}.
_MODULES = {
    ".vtu": "vtu",
    ".vtk": "vtk",
    **dict.fromkeys((".xdmf", ".xmf"), "xdmf"),
    ".msh": "gmsh",
    **dict.fromkeys((".e", ".exo", ".ex2"), "exodus"),
}
_TETRA = (0, 1), (1, 2), (2, 0), (0, 3), (1, 3), (2, 3)
#: {type of cells: its edges, between corners}. Those of cells of second order have their points in this order.
_EDGES: dict[str, Sequence[tuple[int, int]]] = {
    "vertex": (),
    "line": ((0, 1),),
    "triangle": _TETRA[:3],
    "quad": ((0, 1), (1, 2), (2, 3), (3, 0)),
    "tetra": _TETRA,
    "pyramid": ((0, 1), (1, 2), (2, 3), (3, 0), (0, 4), (1, 4), (2, 4), (3, 4)),
    "wedge": ((0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3), (0, 3), (1, 4), (2, 5)),
    "hexahedron": (
        *((0, 1), (1, 2), (2, 3), (3, 0), (4, 5), (5, 6), (6, 7), (7, 4)),
        *((0, 4), (1, 5), (2, 6), (3, 7)),
    ),
}
_SECOND_ORDER = {
    f"{kind}{1 + max(map(max, _EDGES[kind])) + len(_EDGES[kind])}": kind for kind in list(_EDGES)[1:]
}  # line3, triangle6, quad8, tetra10, pyramid13, wedge15, hexahedron20
#: Exodus has the upright edges of a hexahedron before those of its upper side.
_OF_EXODUS = {"hexahedron20": [*range(12), *range(16, 20), *range(12, 16)]}


def matches(path: Path) -> bool:
    """Whether a path looks like this format."""
    return path.is_file() and path.suffix.lower() in _MODULES


def companions(path: Path) -> Iterator[Path]:
    """Other files that a mesh is in: XDMF has its arrays in HDF5 files beside it."""
    if _MODULES.get(path.suffix.lower()) == "xdmf":
        with open(path, encoding="utf-8", errors="replace") as lines:
            names = (name for line in lines for name in re.findall(r"([^<>\s\"]+\.h(?:5|df5?)):", line))
            yield from (path.parent / name for name in names)


def read(path: Path, options: MeshOptions, scratch: Scratch) -> RawGraph:
    """The `RawGraph` of a mesh. Memory: what meshio takes for the mesh, and all fields of one time.

    Raises:
        ConfigError: meshio is not installed.
        FormatError, GraphError: it cannot read the file, or the mesh is faulty.
    """
    _, points, cells, source = open_mesh(path)
    src, dst = _edges(path, _MODULES[path.suffix.lower()], cells, len(points), scratch)
    return RawGraph(
        src, dst, len(points), source=path.stem, position=points, snapshots=source.fields(len(points), scratch.reporter)
    )


def open_mesh(path: Path) -> "tuple[Any, np.ndarray, Any, _Steps]":
    """(meshio, points (n, D), blocks of cells, the fields). Raises as `read` does."""
    try:
        meshio: Any = importlib.import_module("meshio")
    except ImportError as error:
        raise ConfigError(f"{path}: meshes need the package meshio: pip install 'hpcgnn[mesh]'") from error
    name = _MODULES.get(path.suffix.lower())
    if name is None:
        raise FormatError(f"{path}: expected a mesh with a name in {', '.join(_MODULES)}; convert it with meshio")
    try:
        points, cells, source = _opened(path, name, meshio)
    except Exception as error:  # meshio raises whatever its parsers do
        raise FormatError(
            f"{path}: meshio cannot read it ({type(error).__name__}: {error}); write it again, or as .vtu"
        ) from error
    points = np.asarray(points)
    points = points.astype(points.dtype.newbyteorder("=") if _is_real(points) else np.float64, copy=False)
    if len(wrong := np.flatnonzero(~np.isfinite(points).all(axis=1))):
        raise GraphError(f"{path}: point {wrong[0]} is at {points[wrong[0]]}, expected numbers; mend the mesh")
    return meshio, points, cells, source


def _opened(path: Path, name: str, meshio: Any) -> tuple[Any, Any, "_Steps"]:
    """(points, blocks of cells, the fields)."""
    if name == "xdmf":
        try:
            reader = meshio.xdmf.TimeSeriesReader(path)
        except meshio.ReadError:  # no time series
            pass
        else:
            points, cells = reader.read_points_cells()
            times = [float(step.find("Time").get("Value")) for step in reader.collection]
            return points, cells, _Steps(path, times, lambda step: reader.read_data(step)[1])
    mesh = getattr(meshio, name).read(path)
    return mesh.points, mesh.cells, _Steps(path, [0.0], lambda step: mesh.point_data)


def _is_real(values: np.ndarray) -> bool:
    """Whether a graph file has numbers of this type. VTK's are of the other byte order."""
    return values.dtype.kind == "f" and values.dtype.itemsize in (4, 8)


class _Steps:
    """The fields of the points of a file at its times. read(step) -> {name: (n,), (n, F) or (n, F, G)}."""

    def __init__(self, path: Path, times: Sequence[float], read: Any) -> None:
        self.path, self.times, self._read = path, times, read

    def fields(self, count: int, reporter: Reporter) -> FieldSeries | None:
        """The snapshots of `count` points; whole numbers, such as tags, are left out with a warning."""
        found = {name: np.asarray(values) for name, values in (self._read(0) if self.times else {}).items()}
        if left := [name for name, values in found.items() if not _is_real(values)]:
            reporter.warn(f"{self.path}: fields that are not of floating-point numbers are left out: {', '.join(left)}")
        kept = {name: values for name, values in found.items() if name not in left}
        columns = {name: math.prod(values.shape[1:]) for name, values in kept.items()}
        fields = {
            name: self._field(name, (len(self.times), count, columns[name]), values.dtype.newbyteorder("="))
            for name, values in kept.items()
        }
        return series_of_source(self.path, fields, self.times)

    def _field(self, name: str, shape: tuple[int, int, int], kind: np.dtype) -> TimeByTime:
        def where(step: int, row: int) -> str:
            return f"{self.path}: field {name} at snapshot {step} (time {self.times[step]:g}), point {row},"

        def values(step: int) -> np.ndarray:
            found = np.asarray(self._read(step).get(name, ()))
            if found.size != shape[1] * shape[2]:
                raise FormatError(
                    f"{self.path}: field {name} at snapshot {step} (time {self.times[step]:g}) has "
                    f"{found.size} numbers, expected {shape[2]} for each of {shape[1]} points, as at the first time; "
                    "write the series again"
                )
            return found.reshape(shape[1:]).astype(kind, copy=False)

        return TimeByTime(shape, kind, values, where)


def _edges(path: Path, name: str, cells: Any, count: int, scratch: Scratch) -> tuple[RowReader, RowReader]:
    """(sources, destinations) of the edges of all cells, each once in each direction."""
    blocks, begins = [], [0]
    for block in cells:
        data = np.asarray(block.data)
        local = _local_edges(path, block.type, data)
        if name == "exodus" and block.type in _OF_EXODUS:
            data = data[:, _OF_EXODUS[block.type]]
        if len(wrong := np.flatnonzero(((data < 0) | (data >= count)).any(axis=1))):
            raise GraphError(
                f"{path}: cell {wrong[0]} of type {block.type} has the points {data[wrong[0]].tolist()}, and there are "
                f"the points 0..{count - 1}; write the mesh again"
            )
        blocks.append((data, local))
        begins.append(begins[-1] + len(data) * len(local))

    def pairs(start: int, stop: int) -> np.ndarray:
        found = [np.empty((0, 2), np.int64)]
        for (data, local), before in zip(blocks, begins, strict=False):
            first, last = (min(max(place - before, 0), len(data) * len(local)) for place in (start, stop))
            if first < last:
                cell = first // len(local)
                ends = data[cell : -(-last // len(local))][:, local].reshape(-1, 2)
                found.append(ends[first - cell * len(local) : last - cell * len(local)])
        return np.concatenate(found)

    return mesh_edges(count, pairs, begins[-1], scratch)


def _local_edges(path: Path, kind: str, data: np.ndarray) -> np.ndarray:
    """int64 (edges, 2): the edges of a cell, by the places of its points."""
    if kind.startswith("polygon") and data.ndim == 2:
        ring = np.arange(data.shape[1])
        return np.stack([ring, np.roll(ring, -1)], axis=1)
    corners = _SECOND_ORDER.get(kind, kind)
    if corners not in _EDGES:
        raise FormatError(
            f"{path}: cells of type {kind} are not read, expected {', '.join((*_EDGES, *_SECOND_ORDER))} or polygon; "
            "write the mesh with such cells"
        )
    edges = np.array(_EDGES[corners], np.int64).reshape(-1, 2)
    if kind in _SECOND_ORDER:
        middle = 1 + edges.max() + np.arange(len(edges))
        edges = np.concatenate([np.stack([edges[:, end], middle], axis=1) for end in (0, 1)])
    return edges
