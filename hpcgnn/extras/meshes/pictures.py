"""Files beside the forecasts: an XDMF file for ParaView and VisIt, and pictures of errors and of fields."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np

from hpcgnn.graphfile.field_series import name_of_field
from hpcgnn.graphfile.hdf5 import opened
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.records import replaced_by
from hpcgnn.report.style import HEIGHT, WIDTH, drawing, legend, line_styles

if TYPE_CHECKING:
    from hpcgnn.extras.meshes.on_cells import Mesh

#: The dataset of places among the snapshots of the graph file; -1 behind their trajectory.
PLACE = "snapshot"
#: Nodes of the largest mesh that is drawn without being asked: one process holds their positions and fields.
DRAWN_NODES = 1 << 21
_GEOMETRY = {2: "XY", 3: "XYZ"}
_KINDS = {1: "Scalar", 3: "Vector"}


def write_xdmf(path: Path) -> list[Path]:
    """Describe an HDF5 file of forecasts as points with fields at many times. Returns [its name], or [] where nodes
    have no positions in a plane or in space.
    """
    with opened(path) as file:
        times = file["time"][:].tolist()
        shapes = {name: field.shape for name, field in file["snapshots"].items()}
        position = file["position"].shape if "position" in file else (0, 0)
        sizes = {f"snapshots/{name}": field.dtype.itemsize for name, field in file["snapshots"].items()}
        sizes["position"] = file["position"].dtype.itemsize if "position" in file else 0
    if position[1] not in _GEOMETRY:
        return []
    root = ElementTree.Element("Xdmf", Version="3.0")
    domain = ElementTree.SubElement(root, "Domain")
    series = ElementTree.SubElement(domain, "Grid", Name="forecast", GridType="Collection", CollectionType="Temporal")

    def item(parent: ElementTree.Element, name: str, shape: tuple[int, ...]) -> None:
        size = " ".join(map(str, shape))
        attributes = {"Dimensions": size, "NumberType": "Float", "Precision": str(sizes[name]), "Format": "HDF"}
        ElementTree.SubElement(parent, "DataItem", attributes).text = f"{path.name}:/{name}"

    for step, time in enumerate(times):
        grid = ElementTree.SubElement(series, "Grid", Name="mesh", GridType="Uniform")
        ElementTree.SubElement(grid, "Time", Value=repr(time))
        ElementTree.SubElement(grid, "Topology", TopologyType="Polyvertex", NumberOfElements=str(position[0]))
        geometry = ElementTree.SubElement(grid, "Geometry", GeometryType=_GEOMETRY[position[1]])
        item(geometry, "position", position)
        for name, shape in shapes.items():
            kind = _KINDS.get(shape[2], "Matrix")
            field = ElementTree.SubElement(grid, "Attribute", Name=name, AttributeType=kind, Center="Node")
            size = " ".join(map(str, shape[1:] if shape[2] > 1 else shape[1:2]))
            part = ElementTree.SubElement(field, "DataItem", ItemType="HyperSlab", Dimensions=size)
            chosen = f"{step} 0 0  1 1 1  1 {shape[1]} {shape[2]}"
            ElementTree.SubElement(part, "DataItem", Dimensions="3 3", Format="XML").text = chosen
            item(part, f"snapshots/{name}", shape)
    return [written_xml(path.with_suffix(".xdmf"), root)]


def written_xml(path: Path, root: ElementTree.Element) -> Path:
    """Write a file, and return its path."""
    with replaced_by(path) as temporary:
        ElementTree.indent(root)
        ElementTree.ElementTree(root).write(temporary, "utf-8", xml_declaration=True)
    return path


def draw_errors(path: Path, errors: Mapping[float, Mapping[str, float]]) -> list[Path]:
    """Draw each field's RMSE against time beside a file of forecasts. Returns [the picture], or [] for fewer than two
    times or without matplotlib.
    """
    if len(errors) < 2:
        return []
    written = path.with_suffix(".png")
    try:
        with drawing() as sheet:
            figure = sheet(figsize=(WIDTH, HEIGHT))
            axis = figure.add_subplot()
            for name, style in line_styles(next(iter(errors.values()))).items():
                axis.plot(list(errors), [each[name] for each in errors.values()], label=name, **style)
            axis.set(xlabel="time", ylabel="RMSE of the forecast (field's units)", ylim=(0, None))
            legend(axis)
            with replaced_by(written) as temporary:
                figure.savefig(temporary, dpi=220, format="png")
    except ImportError:
        return []
    return [written]


def draw_fields(path: Path, graph: GraphFile, steps: Sequence[int], mesh: "Mesh | None") -> list[Path]:
    """Draw truth, forecast and error of each field at some steps, beside a file of forecasts. Returns [the picture], or
    [] for nodes without positions in a plane or in space, or without matplotlib.

    Args:
        path: the file.
        graph: with the snapshots that are the truth.
        steps: from 1; where there are none, the last one with a truth, of meshes of at most DRAWN_NODES.
        mesh: for its triangles, or None.
    """
    with opened(path) as file:
        places, times = file[PLACE][:].tolist(), file["time"][:].tolist()
        chosen = [step - 1 for step in steps] or [step for step, place in enumerate(places) if place >= 0][-1:]
        nodes = len(file["position"]) if "position" in file else 0
        if not chosen or nodes < 3 or (not steps and nodes > DRAWN_NODES):
            return []
        plane = Plane.of(file["position"][:], None if mesh is None else mesh.triangles())
        if plane is None:
            return []
        panels = []
        for step in chosen:
            for name, field in file["snapshots"].items():
                forecast, label = field[step][plane.nodes].astype(float), f"{name} at time {times[step]:g}"
                truth = None
                if places[step] >= 0:
                    truth = _in_original_order(graph, name, places[step])[plane.nodes].astype(float)
                panels.append((label, forecast, truth))
    written = path.with_name(f"{path.stem}-fields.png")
    try:
        with drawing() as sheet:
            wide, high = np.ptp(plane.points, axis=0)
            figure = sheet(figsize=(9.6, len(panels) * (0.5 + min(max(2.4 * high / wide, 0.8), 4.8))))
            for row, (label, forecast, truth) in enumerate(panels):
                _draw_row(figure, (len(panels), row), plane, label, forecast, truth)
            with replaced_by(written) as temporary:
                figure.savefig(temporary, dpi=140, format="png")
    except ImportError:
        return []
    return [written]


def _in_original_order(graph: GraphFile, name: str, place: int) -> np.ndarray:
    """(n, F): a field at a snapshot."""
    rows = graph.read(name_of_field(name), time=place)
    found = np.empty_like(rows)
    found[graph.read("nodes/original_id")] = rows
    return found


def _draw_row(figure: Any, at: tuple[int, int], plane: "Plane", label: str, forecast: Any, truth: Any) -> None:
    """Truth, forecast and error side by side; of vectors, their lengths."""
    vectors, shown = forecast.shape[1] > 1, {"forecast": _sizes(forecast)}
    if truth is not None:
        shown = {"truth": _sizes(truth)} | shown | {"error": _sizes(forecast - truth)}
    both = np.concatenate([values for kind, values in shown.items() if kind != "error"])
    for column, kind in enumerate(("truth", "forecast", "error")):
        if kind not in shown:
            continue
        title = f"{label}: {f'length of {kind}' if vectors else kind}"
        axis = figure.add_subplot(at[0], 3, 3 * at[1] + column + 1, title=title, aspect="equal")
        axis.set_axis_off()
        far = np.abs(shown[kind]).max()
        signed = kind == "error" and not vectors
        low, high = (-far, far) if signed else (0, far) if kind == "error" else (both.min(), both.max())
        drawn = plane.draw(axis, shown[kind], vmin=low, vmax=high, cmap="RdBu_r" if signed else "viridis")
        figure.colorbar(drawn, ax=axis, shrink=0.8)


def _sizes(rows: np.ndarray) -> np.ndarray:
    return rows[:, 0] if rows.shape[1] == 1 else np.linalg.norm(rows, axis=1)


@dataclass(frozen=True)
class Plane:
    """Nodes in a plane, or in a slice of space.

    Attributes:
        nodes: int64 (m,), in the original order.
        points: (m, 2), where they are.
        triangles: int (k, 3), of a mesh, or None.
        sliced: whether they are some of all nodes.
    """

    nodes: np.ndarray
    points: np.ndarray
    triangles: np.ndarray | None
    sliced: bool

    @classmethod
    def of(cls, position: np.ndarray, triangles: np.ndarray | None) -> "Plane | None":
        """That of nodes at (n, D); None for nodes on a line, or in more than three dimensions. A slice is through the
        middle of the shortest axis, as thick as nodes are apart.
        """
        extent, nodes = np.ptp(position, axis=0), np.arange(len(position))
        wide, found = np.flatnonzero(extent > 1e-9 * extent.max()), None
        sliced = len(wide) == 3
        if sliced:
            short = int(wide[extent[wide].argmin()])
            along, wide = position[:, short], wide[wide != short]
            middle = along[np.abs(along - (along.min() + extent[short] / 2)).argmin()]
            thick = (extent[[short, *wide]].prod() / len(position)) ** (1 / 3)
            nodes = np.flatnonzero(np.abs(along - middle) <= thick / 2)
        elif triangles is not None and len(triangles):
            found = triangles
        points = position[nodes][:, wide]
        apart = points - points.mean(axis=0)
        if len(wide) != 2 or np.linalg.matrix_rank(apart, 1e-6 * np.linalg.norm(apart)) < 2:
            return None
        return cls(nodes, points, found, sliced)

    def draw(self, axis: Any, values: np.ndarray, **style: Any) -> Any:
        """Draw values (m,). Without triangles of a mesh they are Delaunay's; a slice has points."""
        x, y = self.points.T
        if self.sliced:
            return axis.scatter(x, y, c=values, s=min(150.0, 3e4 / len(x)), marker="s", linewidths=0, **style)
        return axis.tripcolor(x, y, values, triangles=self.triangles, shading="gouraud", **style)
