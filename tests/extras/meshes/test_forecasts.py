"""What `rollout` and `predict --one-step` write: arrays in the original order, the cells of a mesh, and pictures."""

import h5py
import numpy as np
import pytest
from mpi.runs import of_run, predicted, session_of, train_into

from hpcgnn.errors import ConfigError, HpcgnnError
from hpcgnn.extras.meshes.one_step import OneStep
from hpcgnn.extras.meshes.pictures import Plane
from hpcgnn.extras.meshes.rollout import RolloutRequest, roll_out
from partition_tools.cli.add_snapshots import add_snapshots
from partition_tools.cli.import_graph import import_graph
from partition_tools.cli.partition_graph import partition_graph

meshio = pytest.importorskip("meshio")
pytestmark = pytest.mark.ranks(2)

TIMES, SIDE = 9, 5
RUN = {"task": "fields", "model": "sage", "layers": 1, "hidden": 4, "dropout": 0.0, "epochs": 1, "partition": "dealt"}


def plate():
    """(points, cells): a square of quadrilaterals, one of which is cut into triangles, with points in any order."""
    place = np.random.default_rng(1).permutation(SIDE * SIDE)
    at = np.stack(np.divmod(np.arange(SIDE * SIDE), SIDE), 1) / (SIDE - 1)
    points = np.zeros((SIDE * SIDE, 3), np.float32)
    points[place, :2] = at
    number = place.reshape(SIDE, SIDE)
    quads = np.stack([number[:-1, :-1], number[1:, :-1], number[1:, 1:], number[:-1, 1:]], -1).reshape(-1, 4)
    return points, [("triangle", quads[:1, [[0, 1, 2], [0, 2, 3]]][0]), ("quad", quads[1:])]


@pytest.fixture(scope="module")
def run(comm, session_path):
    """The folder of a run, beside `mesh.vtu`, `graph.h5` and others."""
    folder = session_path / f"forecasts-{comm.size}"
    if comm.rank == 0:
        folder.mkdir()
        points, cells = plate()
        meshio.Mesh(points, cells).write(folder / "mesh.vtu")
        meshio.Mesh(points + [0, 0, 0.1], cells).write(folder / "moved.vtu")
        meshio.Mesh(points[:9], [("triangle", [[0, 1, 2]])]).write(folder / "small.vtu")
        import_graph(folder / "mesh.vtu", folder / "graph.h5")
        random, fields = np.random.default_rng(2), {}
        for name, width in (("u", 2), ("p", 1)):
            np.save(folder / f"{name}.npy", random.random((TIMES, len(points), width)).astype(np.float32))
            fields[name] = str(folder / f"{name}.npy")
        add_snapshots(folder / "graph.h5", fields, split="0.6/0.2/0.2")
        partition_graph(folder / "graph.h5", [comm.size], method="random-clusters", num_clusters=8, name="dealt")
    comm.barrier()
    train_into(comm, folder / "graph.h5", folder / "run", **RUN)
    return folder / "run"


def rolled_out(comm, run, name, start, steps, **more):
    """The path of the forecasts. Collective."""
    written = run.parent / f"{name}.h5"
    request = RolloutRequest(str(written), start, steps, **more)
    assert roll_out(of_run(run), session_of(comm), "last", request) == 0
    return written


def test_a_series_on_the_cells_of_the_mesh(comm, run):
    """The last of three steps is behind the snapshots."""
    written = rolled_out(comm, run, "on cells", TIMES - 3, 3, mesh=str(run.parent / "mesh.vtu"), drawn=[1, 3])
    points, cells = plate()
    with h5py.File(written) as file:
        assert file["snapshot"][:].tolist() == [TIMES - 2, TIMES - 1, -1]
        for step in range(3):
            found = meshio.read(run.parent / f"on cells_{step + 1}.vtu")
            np.testing.assert_array_equal(found.points, points)
            for block, (kind, expected) in zip(found.cells, cells, strict=True):
                assert block.type == kind and np.array_equal(block.data, expected)
            np.testing.assert_array_equal(found.point_data["p"], file["snapshots/p"][step, :, 0])
            np.testing.assert_array_equal(found.point_data["u"][:, :2], file["snapshots/u"][step])
            assert not found.point_data["u"][:, 2].any()
    listed = (run.parent / "on cells.pvd").read_text()
    for step in (1, 2, 3):
        assert f'timestep="{TIMES - 3 + step}.0" part="0" file="on cells_{step}.vtu"' in listed
    assert not written.with_suffix(".xdmf").exists()


@pytest.mark.parametrize(
    "name, said", [("moved", "point .* is at .*, and this node"), ("small", "9 points, expected the 25")]
)
def test_another_mesh_is_refused(comm, run, name, said):
    with pytest.raises(HpcgnnError, match=said):
        rolled_out(comm, run, "other", None, 1, mesh=str(run.parent / f"{name}.vtu"))


def test_the_mesh_is_not_replaced(comm, run):
    with pytest.raises(HpcgnnError, match="choose another output"):
        rolled_out(comm, run, "forecast", None, 1, mesh=str(run.parent / "forecast_1.vtu"))


@pytest.mark.parametrize("name", ["kept_1.vtu", "kept.pvd", "kept.png", "kept-fields.png"])
def test_no_file_beside_the_forecasts_is_replaced(comm, run, name):
    written, mesh = run.parent / name, str(run.parent / "mesh.vtu")
    if comm.rank == 0:
        written.write_text("mine")
    comm.barrier()
    with pytest.raises(HpcgnnError, match=f"beside --output, .*{name} exists; .*--force"):
        rolled_out(comm, run, "kept", None, 1, mesh=mesh)
    assert written.read_text() == "mine" and not (run.parent / "kept.h5").exists()
    comm.barrier()
    if comm.rank == 0:
        written.unlink()
    comm.barrier()


def test_forecasts_of_one_step(comm, run):
    """Those of a split are the first steps of rollouts from each of its times."""
    written = run.parent / "one.h5"
    predicted(comm, run, written, table=OneStep("val"))
    with h5py.File(written) as file:
        places, times = file["snapshot"][:].tolist(), file["time"][:].tolist()
        fields = {name: file[f"snapshots/{name}"][:] for name in ("u", "p")}
        assert np.array_equal(file["position"][:], plate()[0])
    assert places == [5, 6] and times == [5.0, 6.0]
    for row, place in enumerate(places):
        with h5py.File(rolled_out(comm, run, f"from {place - 1}", place - 1, 1)) as file:
            for name, values in fields.items():
                np.testing.assert_array_equal(values[row], file[f"snapshots/{name}"][0])
    for table, more, said in (
        (OneStep("val"), {"logits": True}, "expected no --probabilities, --logits"),
        (None, {}, "expected an option for them"),
    ):
        with pytest.raises(ConfigError, match=said):
            predicted(comm, run, written, table=table, force=True, **more)


def test_planes():
    """A plane keeps all nodes; a slice of space has those of the layer in the middle of the shortest axis."""
    flat, triangles = plate()[0], np.array([[0, 1, 2]])
    whole = Plane.of(flat, triangles)
    assert len(whole.nodes) == 25 and np.array_equal(whole.points, flat[:, :2]) and whole.triangles is triangles
    box = np.stack(np.meshgrid(*(np.linspace(0, 0.1 * count, count + 1) for count in (8, 4, 6)), indexing="ij"), -1)
    found = Plane.of(box.reshape(-1, 3), None)
    assert found.sliced and len(found.nodes) == 9 * 7
    assert np.ptp(box.reshape(-1, 3)[found.nodes, 1]) == 0 and found.points.shape == (63, 2)
    for line in (np.arange(4.0)[:, None], np.stack([np.arange(4.0)] * 2, 1), np.repeat(np.eye(3), 2, 0)):
        assert Plane.of(line, None) is None
