"""Meshes of other programs, as meshio writes them, become the graph of their points."""

import re
import sys

import numpy as np
import pytest

from hpcgnn.errors import ConfigError, FormatError, GraphError
from hpcgnn.graphfile.storage import GraphFile
from partition_tools.cli.import_graph import import_graph
from partition_tools.workspace.progress import Reporter
from partition_tools.workspace.working import Resources

meshio = pytest.importorskip("meshio")

SQUARE = [(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0)]
CUBE = [*SQUARE, *((x, y, 1) for x, y, _ in SQUARE)]
PRISM = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (0, 1, 1)]
#: The corners of the cells in the order of VTK.
CORNERS = {
    "line": CUBE[:2],
    "triangle": PRISM[:3],
    "quad": SQUARE,
    "tetra": [*PRISM[:3], (0, 0, 1)],
    "pyramid": [*SQUARE, (0.5, 0.5, 1)],
    "wedge": PRISM,
    "hexahedron": CUBE,
}
#: The points on edges of cells of second order: between which corners, in the order of VTK.
BETWEEN = {
    "triangle6": ("triangle", "01 12 20"),
    "tetra10": ("tetra", "01 12 20 03 13 23"),
    "hexahedron20": ("hexahedron", "01 12 23 30 45 56 67 74 04 15 26 37"),
}
TIMES = (0.0, 0.25, 3.0)


def edges_in(cells, kind):
    """The set of the edges (smaller node, larger node) of cells."""
    return {tuple(sorted((int(cell[a]), int(cell[b])))) for cell in cells for a, b in places_of(kind)}


def places_of(kind):
    """The pairs of places in a cell that an edge joins, by where its corners are."""
    if kind in BETWEEN:
        corners, middles = len(CORNERS[BETWEEN[kind][0]]), BETWEEN[kind][1].split()
        return {(int(end), corners + place) for place, ends in enumerate(middles) for end in ends}
    at = np.array(CORNERS[kind])
    flat = {"triangle", "tetra", "line"}  # all pairs
    apart = np.abs(at[:, None] - at)
    joined = np.ones(apart.shape[:2], bool) if kind in flat else (apart.sum(axis=2) == 1)
    if kind == "pyramid":
        joined[4] = joined[:, 4] = True
    if kind == "wedge":  # the long side of the triangles as well
        joined |= np.equal.outer(at[:, 2], at[:, 2])
    return {(a, b) for a, b in np.argwhere(np.triu(joined, 1)).tolist()}


def made(kinds, dtype):
    """(meshio's mesh, the set of its edges): two cells of each kind, some of whose points are the same."""
    random = np.random.default_rng(3)
    number, blocks, edges = 40, [], set()
    for kind in kinds:
        corners = CORNERS[BETWEEN.get(kind, (kind,))[0]]
        points = len(corners) + (len(BETWEEN[kind][1].split()) if kind in BETWEEN else 0)
        cells = np.stack([random.permutation(number)[:points] for _ in range(2)])
        blocks.append((kind, cells))
        edges |= edges_in(cells, kind)
    return meshio.Mesh(random.random((number, 3)).astype(dtype), blocks, fields(random, number, dtype)), edges


def fields(random, number, dtype):
    return {"pressure": random.random(number).astype(dtype), "u": random.random((number, 3)).astype(dtype)}


@pytest.mark.parametrize("suffix", [".vtu", ".vtk", ".xdmf", ".msh", ".exo"])
def test_formats(tmp_path, suffix, monkeypatch):
    if suffix == ".exo":
        pytest.importorskip("netCDF4")
    monkeypatch.chdir(tmp_path)  # meshio writes the arrays of XDMF there
    dtype = np.float32 if suffix == ".vtu" else np.float64
    second = () if suffix == ".exo" else BETWEEN  # meshio does not write the order of Exodus
    mesh, edges = made((*CORNERS, *second), dtype)
    steps = [mesh.point_data]
    if suffix == ".xdmf":
        steps += [fields(np.random.default_rng(step), 40, dtype) for step in (1, 2)]
        with meshio.xdmf.TimeSeriesWriter("mesh.xdmf") as writer:
            writer.write_points_cells(mesh.points, [block for block in mesh.cells if block.type == "tetra"])
            for time, values in zip(TIMES, steps, strict=True):
                writer.write_data(time, values)
        (cells,) = (block.data for block in mesh.cells if block.type == "tetra")
        edges = edges_in(cells, "tetra")
    else:
        if suffix != ".msh":  # where all numbers are real
            mesh.point_data["tag"] = np.arange(40)
        mesh.write(f"mesh{suffix}", **({"file_format": "gmsh22"} if suffix == ".msh" else {}))
    reporter = Reporter()
    import_graph(f"mesh{suffix}", "graph.h5", resources=Resources(reporter=reporter))
    with GraphFile("graph.h5") as file:
        np.testing.assert_array_equal(file.read("nodes/position"), mesh.points)
        dst, src = np.repeat(np.arange(40), np.diff(file.read("topology/indptr"))), file.read("topology/indices")
        pairs = sorted(zip(src.tolist(), dst.tolist(), strict=True))
        assert pairs == sorted([*edges, *((b, a) for a, b in edges)])
        assert file.read("trajectories/time").tolist() == list(TIMES[: len(steps)])
        assert file.meta.snapshots == {"pressure": 1, "u": 3}
        for step, values in enumerate(steps):
            for name, expected in values.items():
                if name in file.meta.snapshots:
                    found = file.read(f"snapshots/{name}", time=step)
                    np.testing.assert_array_equal(found, expected.reshape(40, -1))
                    assert found.dtype == (np.float64 if suffix == ".exo" else dtype)
    assert any("left out: tag" in text for text in reporter.warnings) == (suffix not in (".xdmf", ".msh"))
    if suffix == ".xdmf":
        with pytest.raises(ConfigError, match="mesh.h5 is"):
            import_graph("mesh.xdmf", "mesh.h5", force=True)


def test_refused(tmp_path, monkeypatch):
    points, path = np.eye(3), tmp_path / "mesh.vtu"
    for text, cells, change in (
        ("cells of type quad9 are not read, expected vertex", ("quad9", [[0, 1, 2, 0, 1, 2, 0, 1, 2]]), {}),
        (r"cell 1 of type line has the points \[0, 3\], and .* 0..2;", ("line", [[0, 1], [0, 3]]), {}),
        ("point 1 is at .*nan.*, expected numbers", ("line", [[0, 1]]), {"points": np.diag([1, np.nan, 1])}),
        (
            r"field p at snapshot 0 \(time 0\), point 2, is NaN or infinite",
            ("line", [[0, 1]]),
            {"point_data": {"p": np.array([0, 1, np.inf])}},
        ),
        ("must have a name without a slash", ("line", [[0, 1]]), {"point_data": {"a/b": np.ones(3)}}),
    ):
        meshio.Mesh(**({"points": points, "cells": [cells]} | change)).write(path)
        with pytest.raises((FormatError, GraphError)) as caught:
            import_graph(path, tmp_path / "graph.h5")
        assert re.search(text, str(caught.value)), str(caught.value)
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(FormatError, match="mesh.vtu: meshio cannot read it .*; write it again"):
        import_graph(path, tmp_path / "graph.h5")
    monkeypatch.setitem(sys.modules, "meshio", None)
    with pytest.raises(ConfigError, match="need the package meshio: pip install"):
        import_graph(path, tmp_path / "graph.h5")
    assert [each.name for each in tmp_path.iterdir()] == ["mesh.vtu"]
