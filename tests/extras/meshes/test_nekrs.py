"""Folders as nekRS-ML writes them become the mesh that they are of, whatever the number of ranks."""

import itertools
import re
import shutil

import numpy as np
import pytest

from hpcgnn.errors import FormatError, GraphError
from hpcgnn.graphfile.storage import SPLITS, GraphFile
from partition_tools.cli.import_graph import import_graph
from partition_tools.workspace.progress import Reporter
from partition_tools.workspace.working import Resources

ELEMENTS, ORDER = (4, 2, 3), 2  # the point in the middle of an element of order 2 has the id 0
TIMES = ("10.0", "2.5", "0.0")
COUNT = np.array(ELEMENTS) * ORDER + 1


class Mesh:
    """A box of elements: `elements` (number, points of one) of nodes, and `edges`, the set of their pairs both ways."""

    def __init__(self, periodic):
        lattice = np.array(list(itertools.product(*map(range, COUNT))))
        self.position = lattice * [0.1, 0.7, 1 / 3] - 0.3
        within = np.array(list(itertools.product(range(ORDER + 1), repeat=3)))
        corners = np.array(list(itertools.product(*map(range, ELEMENTS)))) * ORDER
        places = corners[:, None] + within
        self.points = self.position[np.ravel_multi_index(places.transpose(2, 0, 1), COUNT)]
        if periodic:
            places[..., 0] %= COUNT[0] - 1
        self.elements = np.ravel_multi_index(places.transpose(2, 0, 1), COUNT)
        self.pairs = np.argwhere(np.abs(within[:, None] - within).sum(axis=2) == 1)  # both ways
        self.inside = len(within) // 2
        self.edges = {(a, b) for a, b in self.elements[:, self.pairs].reshape(-1, 2).tolist() if a != b}
        self.nodes = np.unique(self.elements)

    def value(self, name, time):
        """(nodes, columns): a field of all nodes of the lattice."""
        random = np.random.default_rng([len(name), round(10 * float(time))])
        return random.standard_normal((len(self.position), 2 if name == "u_x" else 1))


def write(folder, mesh, ranks, times=TIMES):
    """Write a folder of `ranks` ranks, and return {node: the lowest rank that holds it}."""
    folder.mkdir()
    random = np.random.default_rng(ranks)
    of_rank = np.sort(random.permutation(np.arange(len(mesh.elements)) % ranks))
    random.shuffle(of_rank)
    lowest = {}
    for rank in range(ranks):
        mine = np.flatnonzero(of_rank == rank)
        nodes = mesh.elements[mine]
        ids = nodes + 1
        ids[:, mesh.inside] = 0
        edges = mesh.pairs + nodes.shape[1] * np.arange(len(mine))[:, None, None]
        edges = random.permutation(edges.reshape(-1, 2))
        kept = (edges[:, 0] < edges[:, 1]) | (random.random(len(edges)) < 0.5)  # of some the reverse is missing
        of_points = {
            "pos_node": mesh.points[mine],
            "global_ids": ids.astype(np.int64),
            "edge_index": edges[kept].astype(np.int32),
            **{f"fld_{name}_time_{time}": mesh.value(name, time)[nodes] for name in ("p", "u_x") for time in times},
        }
        for name, values in of_points.items():
            if name.startswith("fld_u"):  # nekRS aligns its arrays
                values = values.reshape(-1, values.shape[-1])
                values = np.concatenate([values, np.full((-len(values) % 32, 2), np.nan)])
            values.tofile(folder / f"{name}_rank_{rank}_size_{ranks}.bin")
        lowest = dict.fromkeys(nodes.ravel().tolist(), rank) | lowest
    return lowest


@pytest.mark.parametrize("periodic", [False, True])
def test_same_mesh(tmp_path, periodic):
    """Of some edges the folder has one direction, of the ends of a periodic axis two positions."""
    mesh = Mesh(periodic)
    for ranks in (1, 2, 3):
        folder, output, reporter = tmp_path / f"mesh-{ranks}", tmp_path / f"{ranks}.h5", Reporter()
        lowest = write(folder, mesh, ranks)
        import_graph(folder, output, resources=Resources(reporter=reporter))
        check(output, mesh, ranks, lowest)
        assert any("periodic along x." in text for text in reporter.warnings) == periodic


def check(path, mesh, ranks, lowest):
    """The graph of a file is the mesh, and its map has the lowest rank that holds each node."""
    with GraphFile(path) as file:
        position, ids = file.read("nodes/position"), file.read("original/id")[file.read("nodes/original_id")]
        node = np.array([np.flatnonzero((mesh.position == place).all(axis=1))[0] for place in position])
        np.testing.assert_array_equal(np.sort(node), mesh.nodes)
        inside = np.isin(node, mesh.elements[:, mesh.inside])
        np.testing.assert_array_equal(ids[~inside], node[~inside] + 1)
        assert len(np.unique(ids)) == len(ids) and (ids[inside] > ids[~inside].max()).all()
        dst = np.repeat(node, np.diff(file.read("topology/indptr")))
        edges = list(zip(node[file.read("topology/indices")].tolist(), dst.tolist(), strict=True))
        assert file.meta.undirected and len(edges) == len(mesh.edges) and set(edges) == mesh.edges
        assert file.meta.snapshots == {"p": 1, "u_x": 2}
        times = sorted(TIMES, key=float)
        np.testing.assert_array_equal(file.read("trajectories/time"), [float(time) for time in times])
        for name, (snapshot, time) in itertools.product(file.meta.snapshots, enumerate(times)):
            found = file.read(f"snapshots/{name}", time=snapshot)
            np.testing.assert_array_equal(found, mesh.value(name, time)[node])
        clusters, _ = file.cluster_map("nekrs", ranks)
        rank = np.repeat(clusters, np.diff(file.read("clusters/offsets")))
        assert rank.tolist() == [lowest[each] for each in node.tolist()]
        assert (file.read("trajectories/split") == SPLITS["train"]).all()


STEPS = {"tinit_0.500000_dtfactor_10": (0, 10, 100), "tinit_10.000000_dtfactor_10": (0, 10)}


def written_trajectories(folder, mesh, ranks):
    """The folder of a mesh, beside which the plugin trajGen has left two trajectories, the second with padding."""
    write(folder / "gnn_outputs_poly_2", mesh, ranks, ("0.0",))
    for number, (begin, steps) in enumerate(STEPS.items()):
        for rank, step in itertools.product(range(ranks), steps):
            part = folder / "traj_poly_2" / begin / f"data_rank_{rank}_size_{ranks}"
            part.mkdir(parents=True, exist_ok=True)
            ids = np.fromfile(folder / f"gnn_outputs_poly_2/global_ids_rank_{rank}_size_{ranks}.bin", np.int64)
            position = np.fromfile(folder / f"gnn_outputs_poly_2/pos_node_rank_{rank}_size_{ranks}.bin").reshape(-1, 3)
            values = np.concatenate([step + position + number, np.full((-len(ids) % 32 * number, 3), np.nan)])
            values.tofile(part / f"u_step_{step}.bin")


def test_trajectories(tmp_path):
    for ranks in (1, 2):
        folder, output = tmp_path / f"of-{ranks}", tmp_path / f"{ranks}.h5"
        folder.mkdir()
        written_trajectories(folder, Mesh(False), ranks)
        reporter = Reporter()
        import_graph(folder / "gnn_outputs_poly_2", output, resources=Resources(reporter=reporter))
        assert any("files fld_* are left out" in text for text in reporter.warnings)
        with GraphFile(output) as file:
            assert file.meta.snapshots == {"u": 3}
            assert file.read("trajectories/number").tolist() == [0, 0, 0, 1, 1]
            assert file.read("trajectories/time").tolist() == [0, 10, 100, 0, 10]
            position = file.read("nodes/position")
            for place, (number, step) in enumerate([(0, 0), (0, 10), (0, 100), (1, 0), (1, 10)]):
                np.testing.assert_array_equal(file.read("snapshots/u", time=place), step + position + number)
    first = folder / "traj_poly_2" / next(iter(STEPS))
    (first / "data_rank_1_size_2/u_step_10.bin").unlink()
    with pytest.raises(FormatError, match="data_rank_1_size_2 has no u_step_10.bin, expected it of each of 2 ranks;"):
        import_graph(folder / "gnn_outputs_poly_2", tmp_path / "no.h5")
    for part in list(first.iterdir()):
        part.rename(part.with_name(part.name.replace("size_2", "size_3")))
    with pytest.raises(FormatError, match="has no files of 2 ranks such as data_rank_0_size_2/u_step_0.bin"):
        import_graph(folder / "gnn_outputs_poly_2", tmp_path / "no.h5")


def _cut(file):
    file.write_bytes(file.read_bytes()[:-4])


def _set(place, value):
    def change(file):
        kind = {"global_ids": np.int64, "edge_index": np.int32}.get(file.name.split("_rank")[0], np.float64)
        values = np.fromfile(file, kind)
        values[place] = value
        values.tofile(file)

    return change


def _padded(file):
    np.concatenate([np.fromfile(file), np.zeros(4)]).tofile(file)


WRONG = {
    "edge_index_rank_1_size_2.bin": {
        "no edge_index_rank_1_size_2.bin, expected it of each of 2 ranks": lambda file: file.unlink(),
        "has .* bytes, expected a multiple of 8": _cut,
        "edge_index_rank_1_size_2.bin: edge 2 is from point 77777 to point": _set(4, 77777),
        "edge 2 is from point -1 to point": _set(4, -1),
    },
    "pos_node_rank_0_size_2.bin": {
        "has 7772 bytes, expected 7776, for 324 points": _cut,
        r"point 1 is at \(.*nan": _set(3, np.nan),
    },
    "global_ids_rank_1_size_2.bin": {
        r"global id 1 is at \(.*\(point 5\), and in global_ids_rank_.*expected one position": _set(5, 1),
        "files of 2 and 3 ranks": lambda file: file.rename(file.with_name("global_ids_rank_1_size_3.bin")),
    },
    "fld_p_time_2.5_rank_1_size_2.bin": {
        "has no fld_p_time_2.5_rank_1_size_2.bin": lambda file: file.unlink(),
        "has 2588 bytes, expected a multiple of 2592": _cut,
        "has 2624 bytes, expected a multiple of 2592": _padded,
        r"field p at snapshot 1 \(time 2.5\), point .* \(global id .*\), is NaN": _set(slice(4, 200), np.inf),
        "has 2 numbers for each point and .* 1": lambda file: np.zeros(648).tofile(file),
    },
    "fld_p_time_0.0_rank_*_size_2.bin": {
        r"field p at 2 times and not at 0 \(trajectory 0\), expected": lambda file: file.unlink(),
        "has fld_p_time_2.5 and fld_p_time_2.50, expected each time once": lambda file: file.rename(
            file.with_name(file.name.replace("0.0", "2.50"))
        ),
        "the time 'end', expected a number": lambda file: file.rename(file.with_name(file.name.replace("0.0", "end"))),
    },
}


def test_refused(tmp_path):
    write(tmp_path / "sound", Mesh(False), 2)
    for name, text in ((name, text) for name, texts in WRONG.items() for text in texts):
        shutil.copytree(tmp_path / "sound", tmp_path / "mesh")
        for file in list((tmp_path / "mesh").glob(name)):
            WRONG[name][text](file)
        with pytest.raises((FormatError, GraphError)) as caught:
            import_graph(tmp_path / "mesh", tmp_path / "graph.h5")
        assert re.search(text, str(caught.value)) and ";" in str(caught.value), str(caught.value)
        shutil.rmtree(tmp_path / "mesh")
        assert [path.name for path in tmp_path.iterdir()] == ["sound"]
