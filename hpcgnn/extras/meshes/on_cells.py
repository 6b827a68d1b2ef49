"""Forecasts on the cells of a mesh: a file of VTK for each time, by meshio, and one that lists them for ParaView."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from hpcgnn.errors import GraphError
from hpcgnn.extras.meshes.meshio_files import open_mesh
from hpcgnn.extras.meshes.pictures import written_xml
from hpcgnn.graphfile.field_series import POSITION
from hpcgnn.graphfile.hdf5 import opened
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.records import replaced_by

#: Points are at the nodes' positions up to this share of the mesh: a file may have numbers of single precision.
_ROUNDING = 1e-5


def names_of_series(path: Path, count: int) -> list[Path]:
    """The files of so many steps beside a file of forecasts."""
    return [path.with_name(f"{path.stem}_{step:0{len(str(count))}}.vtu") for step in range(1, count + 1)]


@dataclass(frozen=True)
class Mesh:
    """A mesh with the nodes of a graph as its points, in the order of their original ids. mesh: meshio's."""

    mesh: Any

    @classmethod
    def read(cls, path: str, graph: GraphFile) -> "Mesh":
        """Read a mesh. Raises ConfigError without meshio, FormatError, and GraphError where it is not the graph's."""
        meshio, points, cells, _ = open_mesh(Path(path))
        if len(points) != graph.meta.num_nodes:
            raise GraphError(
                f"--mesh {path} has {len(points)} points, expected the {graph.meta.num_nodes} nodes of {graph.path}; "
                "give the file that the graph was imported from"
            )
        if POSITION in graph:
            nodes, there = graph.read("nodes/original_id"), graph.read(POSITION)
            columns = min(there.shape[1], points.shape[1])
            apart = np.abs(there[:, :columns] - points[nodes][:, :columns]).max(axis=1)
            row = int(apart.argmax())
            if apart[row] > _ROUNDING * np.ptp(there, axis=0).max():
                raise GraphError(
                    f"--mesh {path}: point {nodes[row]} is at {points[nodes[row]]}, and this node of {graph.path} at "
                    f"{there[row]}; give the file that the graph was imported from"
                )
        return cls(meshio.Mesh(points, cells))

    def write_series(self, path: Path) -> list[Path]:
        """Write the fields of a file of forecasts: NAME.pvd, and NAME_STEP.vtu of each step. Returns [the first]."""
        root = ElementTree.Element("VTKFile", type="Collection", version="0.1")
        listed = ElementTree.SubElement(root, "Collection")
        with opened(path) as file:
            times = file["time"][:].tolist()
            for step, (time, target) in enumerate(zip(times, names_of_series(path, len(times)), strict=True)):
                fields = {name: _columns(field[step]) for name, field in file["snapshots"].items()}
                self.mesh.point_data = fields
                with replaced_by(target) as temporary:
                    self.mesh.write(temporary, file_format="vtu")
                ElementTree.SubElement(listed, "DataSet", timestep=repr(time), part="0", file=target.name)
        return [written_xml(path.with_suffix(".pvd"), root)]

    def triangles(self) -> np.ndarray:
        """int (m, 3): the triangles, and parts of the quadrilaterals."""

        def parts() -> Iterator[np.ndarray]:
            yield np.zeros((0, 3), np.int64)
            for block in self.mesh.cells:
                corners = {"triangle": 3, "quad": 4}.get(block.type.rstrip("0123456789"), 0)
                for last in range(2, corners):
                    yield block.data[:, [0, last - 1, last]]

        return np.concatenate(list(parts()))


def _columns(rows: np.ndarray) -> np.ndarray:
    """Numbers (n,), or vectors: VTK knows those of three columns alone."""
    if rows.shape[1] == 1:
        return rows[:, 0]
    return np.pad(rows, ((0, 0), (0, 1))) if rows.shape[1] == 2 else rows
