"""Fields at many times: written from every format, carried by the other commands bit for bit, and refused by name."""

import sys
import tracemalloc
import types

import h5py
import numpy as np
import pytest
import scipy.io
from partition_helpers import odd_graph, save_npz

import partition_tools
from hpcgnn.errors import GraphError
from hpcgnn.graphfile.storage import GraphFile, check_structure
from partition_tools.cli.verify_graph import verify_graph
from partition_tools.graph.fields import PlacedField

N, T = 60, 6


def drawn(seed=1, kind=np.float32):
    return np.random.default_rng(seed).standard_normal((T, N, 2)).astype(kind)


def contents(path):
    """{dataset: its array}, fields and nodes in the original order."""
    found = {}
    with h5py.File(path) as file:
        row_of = np.argsort(file["nodes/original_id"][:])
        file.visititems(lambda name, node: found.update({name: node[()]}) if isinstance(node, h5py.Dataset) else None)
        assert {name: width for name, width in GraphFile(path).meta.snapshots.items()} == {
            name: file["snapshots"][name].shape[2] for name in file["snapshots"]
        }
    for name in found:
        if name.startswith(("snapshots/", "nodes/")):
            found[name] = np.take(found[name], row_of, axis=int(name.startswith("snapshots/")))
    return found


def imported(path, clusters=8):
    """A graph file in the order of the import, or of clusters."""
    save_npz(path.with_suffix(".npz"), *odd_graph(), N)
    partition_tools.import_graph(path.with_suffix(".npz"), path)
    if clusters > 1:
        partition_tools.partition_graph(path, [2, 4], num_clusters=clusters)
    return path


@pytest.fixture
def graph(tmp_path):
    return imported(tmp_path / "g.h5")


def write_hdf5(path, name, array, **how):
    with h5py.File(path, "a") as file:
        file.create_dataset(name, data=array, **how)


def write_netcdf(path, array, **attributes):
    with scipy.io.netcdf_file(path, "w") as file:
        file.createDimension("time", None)  # of records: the values of a time lie apart from those of the next
        file.createDimension("node", N)
        file.createDimension("two", 2)
        for name in ("u", "other"):
            variable = file.createVariable(name, array.dtype.char, ("time", "node", "two"))
            variable[:] = array
            for key, value in attributes.items():
                setattr(variable, key, value)


def write_zarr(path, array):
    """A folder that a stand-in for the package opens."""
    path.mkdir()
    np.save(path / "u.npy", array)


class ZarrStandIn(types.ModuleType):
    def open(self, path, mode):
        arrays = {"u": np.load(f"{path}/u.npy", "r")}

        class Group(dict):
            def arrays(self):
                return self.items()

        return Group(arrays)


def test_every_format_in_every_order(cli, tmp_path, monkeypatch):
    """Fields of each format lie in the file's order, with times and splits, in blocks of any size. The uuid is of the
    contents alone.
    """
    monkeypatch.setitem(sys.modules, "zarr", ZarrStandIn("zarr"))
    wide, half, ints = drawn(kind=np.float64), drawn(2).astype(np.float16), drawn(3).astype(np.int16)
    np.save(tmp_path / "u.npy", drawn())
    np.save(tmp_path / "fortran.npy", np.asfortranarray(drawn(4)))
    write_hdf5(tmp_path / "s.h5", "run/p", wide[..., 0], chunks=(4, 7), compression=1, shuffle=True)
    write_hdf5(tmp_path / "s.h5", "half", half, chunks=(6, 60, 1))
    write_hdf5(tmp_path / "t.h5", "ints", ints)
    write_netcdf(tmp_path / "n.nc", drawn(5))
    write_zarr(tmp_path / "z.zarr", drawn(6))
    np.save(tmp_path / "x.npy", wide[0, :, :])
    np.save(tmp_path / "v.npy", np.abs(wide[1, :, 0]).astype(np.float32))
    np.save(tmp_path / "b.npy", wide[2, :, 0] > 0)
    given = (
        "--position x.npy --volume v.npy --given b.npy --trajectories 2 --times 0.5:0.25 --split 0.4/0.3/0.3".split()
    )
    words = "vel=u.npy fortran=fortran.npy p=s.h5:run/p half=s.h5:half whole=t.h5 u=n.nc z=z.zarr".split()
    monkeypatch.chdir(tmp_path)
    expected = {
        **{"vel": drawn(), "fortran": drawn(4), "p": wide[..., :1], "u": drawn(5), "z": drawn(6)},
        **{"half": half.astype(np.float32), "whole": ints.astype(np.float32)},
    }
    seen = {uuid_of(imported(tmp_path / "g.h5"))}
    for clusters, budget in ((1, 1 << 30), (8, 1 << 8)):
        monkeypatch.setattr("partition_tools.cli.add_snapshots.memory_budget", lambda said, budget=budget: budget)
        graph = imported(tmp_path / f"{clusters}.h5", clusters)
        code, out, err = cli("snapshots", graph, *words, *given)
        assert code == 0, err
        assert "vel (2)" in out and "6 times (2 train, 2 val, 2 test), trajectories 3" in out
        check_contents(graph, expected, wide)
        seen.add(uuid_of(graph))
    assert len(seen) == 2
    assert cli("snapshots", graph, "vel=fortran.npy", "--force")[0] == 0 and uuid_of(graph) not in seen


def uuid_of(path):
    with GraphFile(path) as file:
        return file.meta.uuid


def check_contents(graph, expected, wide):
    found = contents(graph)
    for name, array in expected.items():
        assert found[f"snapshots/{name}"].dtype == array.dtype and np.array_equal(found[f"snapshots/{name}"], array), (
            name
        )
    assert np.array_equal(found["nodes/position"], wide[0]) and found["nodes/volume"].dtype == np.float32
    assert np.array_equal(found["nodes/given"], wide[2, :, 0] > 0) and found["nodes/given"].dtype == np.uint8
    assert found["trajectories/time"].tolist() == [0.5, 0.75] * 3
    assert found["trajectories/number"].tolist() == [0, 0, 1, 1, 2, 2]
    assert found["trajectories/split"].tolist() == [1, 1, 2, 2, 3, 3]
    assert not [check for check in verify_graph(graph) if not check.ok]
    with GraphFile(graph) as file:
        check_structure(file)
        assert file.file.attrs["format_version"] == 7
        assert file.file["snapshots/vel"].chunks[0] == 1 and file.file["snapshots/vel"].fletcher32


def test_other_commands_carry_fields(cli, graph, tmp_path):
    """New clusters, new maps, hops of features and further fields leave every bit of the others."""
    fields = {"u": drawn(), "p.total": drawn(2, np.float64)[..., 0]}
    partition_tools.add_snapshots(graph, fields, position=drawn(3)[0], volume=np.ones(N), given=np.arange(N) % 2)
    before, changed = contents(graph), {"clusters", "partitionings", "topology", "topology_out", "edges", "edges_out"}
    for method in ("metis", "random-nodes"):
        words = "--method", method, "--clusters", 9, "-o", tmp_path / f"{method}.h5"
        for more in (
            ("add", graph, "--ranks", "2,3", *words),
            ("remove", tmp_path / f"{method}.h5", method, "--ranks", 2),
        ):
            assert cli("partition", *more)[0] == 0
        after = contents(tmp_path / f"{method}.h5")
        for name, array in before.items():
            if name.split("/")[0] not in changed and name != "nodes/original_id":
                assert after[name].dtype == array.dtype and after[name].tobytes() == array.tobytes(), name
        assert not [check for check in verify_graph(tmp_path / f"{method}.h5") if not check.ok]
    partition_tools.add_snapshots(graph, {"more": drawn(9)}, split="1/0/0", force=True)
    after = contents(graph)
    assert np.array_equal(after["snapshots/more"], drawn(9)) and after["trajectories/split"].tolist() == [1] * T
    assert all(np.array_equal(after[name], before[name]) for name in before if name.startswith("snapshots"))
    code, out, _ = cli("inspect", graph)
    assert code == 0 and "more 2, p.total 1, u 2" in out and "train 6, val 0, test 0" in out
    half = {"u": drawn()[:3]}
    with pytest.raises(GraphError, match="more has 6, p.total has 6, u has 3"):
        partition_tools.add_snapshots(graph, half, force=True)


HOSTILE = {
    "nothing": ("", "nothing to add"),
    "no file": ("u", "expected NAME=FILE"),
    "missing": ("u=absent.npy", "cannot read absent.npy: No such file"),
    "twice": ("u=u.npy u=nan.npy", "given twice"),
    "a name": ("a/b=u.npy", "without a slash"),
    "nodes": ("u=turned.npy", "has shape (60, 6, 2), expected (T, 60) or (T, 60, F)"),
    "words": ("u=words.npy", "holds <U1, expected numbers"),
    "pickled": ("u=pickled.npy", "Python objects"),
    "no dataset": ("u=s.h5", "has no dataset 'u'; it has a, b: say FILE:DATASET"),
    "wrong dataset": ("u=s.h5:c", "has no dataset 'c'; it has a, b"),
    "damaged": ("u=damaged.h5", "cannot be read"),
    "no HDF5": ("u=short.h5", "not a readable HDF5 file"),
    "no NetCDF": ("u=short.nc", "not a readable NetCDF-3 file"),
    "packed": ("u=packed.nc", "packed.nc:u is packed (attribute scale_factor)"),
    "fill values": ("u=filled.nc", "u at snapshot 2 (time 2) is [nan 0.5] at node 7, row 7 of filled.nc:u"),
    "NaN": ("u=nan.npy --times 0:0.5", "u at snapshot 4 (time 2) is"),
    "infinite": ("u=inf.npy", "u at snapshot 1 (time 1) is"),
    "text": ("u=u.csv", "in no format that is read"),
    "a folder": ("u=folder", "pip install zarr"),
    "other times": ("u=u.npy v=short.npy", "u has 6, v has 3"),
    "times": ("u=u.npy --times short.npy", "expected (6,)"),
    "falling times": ("u=u.npy --times 0:-1", "snapshots 0 and 1 of trajectory 0 have 0 and -1; mend --times"),
    "trajectories": ("u=u.npy --trajectories 4", "expected a divisor of the 6 snapshots"),
    "falling trajectories": ("u=u.npy --trajectories falls.npy", "snapshot 5 has number 0 of its trajectory"),
    "half a trajectory": ("u=u.npy --trajectories half.npy", "whole numbers"),
    "few trajectories": ("u=u.npy --trajectories 3", "2 trajectories are too few for 3 parts"),
    "shares": ("u=u.npy --split 0.8/0.2/0.1", "together at most 1"),
    "splits": ("u=u.npy --split nine.npy", "snapshot 0 has split 9, expected 0..3"),
    "times of nothing": ("--times 0:1", "give NAME=FILE as well"),
    "position": ("u=u.npy --position u.npy", "expected (60, D) for nodes/position"),
    "position NaN": ("u=u.npy --position nan2.npy", "at node 3, row 3 of nan2.npy; expected numbers"),
    "volume": ("u=u.npy --volume minus.npy", "expected numbers of at least 0"),
    "given": ("u=u.npy --given minus.npy", "nodes/given is [-1.] at node 5, row 5 of minus.npy; expected 0 or 1"),
}


def write_hostile(folder):
    values = drawn()
    arrays = {"u": values, "turned": values.transpose(1, 0, 2), "short": values[:3], "nan": values.copy()}
    arrays |= {"inf": values.copy(), "words": np.full((T, N), "a"), "falls": np.array([0, 1, 1, 1, 1, 0])}
    arrays |= {"half": np.arange(T) / 2, "nine": np.full(T, 9), "minus": np.ones(N), "nan2": values[0].copy()}
    arrays["nan"][4, 17, 1], arrays["inf"][1, 2, 0], arrays["minus"][5], arrays["nan2"][3, 0] = (
        np.nan,
        np.inf,
        -1,
        np.nan,
    )
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    np.save(folder / "pickled.npy", np.full((T, N), {}), allow_pickle=True)
    for name in "ab":
        write_hdf5(folder / "s.h5", name, values)
    write_hdf5(folder / "damaged.h5", "u", values, fletcher32=True, chunks=(1, N, 2))
    with h5py.File(folder / "damaged.h5") as file:
        place = file["u"].id.get_chunk_info(3).byte_offset
    data = bytearray((folder / "damaged.h5").read_bytes())
    data[place + 5] ^= 1
    (folder / "damaged.h5").write_bytes(data)
    (folder / "short.h5").write_bytes(data[:500])
    filled = values.copy()
    filled[2, 7] = -999, 0.5
    write_netcdf(folder / "filled.nc", filled, _FillValue=np.float32(-999))
    write_netcdf(folder / "packed.nc", filled, scale_factor=0.1)
    (folder / "short.nc").write_bytes((folder / "filled.nc").read_bytes()[:70])
    (folder / "u.csv").write_text("1,2\n")
    (folder / "folder").mkdir()


def test_hostile_input_is_one_line_and_changes_nothing(graph, fails, tmp_path, monkeypatch):
    write_hostile(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "zarr", None)
    for name, (words, expected) in HOSTILE.items():
        line = fails("snapshots", "g.h5", *words.split())
        assert expected in line, (name, line)


def test_what_is_there_is_replaced_with_force_alone(cli, graph, fails, tmp_path):
    np.save(tmp_path / "u.npy", drawn())
    np.save(tmp_path / "v.npy", drawn(2)[:5])
    assert cli("snapshots", graph, f"u={tmp_path}/u.npy")[0] == 0
    assert "has snapshots/u already; replace with --force" in fails("snapshots", graph, f"u={tmp_path}/v.npy")
    assert "trajectories/split already" in fails("snapshots", graph, "--split", "1/0/0")
    size = graph.stat().st_size
    assert cli("snapshots", graph, f"u={tmp_path}/v.npy", "--force")[0] == 0
    found = contents(graph)
    assert np.array_equal(found["snapshots/u"], drawn(2)[:5]) and found["trajectories/time"].tolist() == [0, 1, 2, 3, 4]
    assert graph.stat().st_size < size


def _with(name, change):
    def make(file):
        array = file[name][()]
        array = change(array)
        del file[name]
        file[name] = array

    return make


def _put(place, value):
    def change(array):
        array[place] = value
        return array

    return change


FAULTS = {
    "NaN": (_with("snapshots/u", _put((4, 17, 1), np.nan)), "finite field u", "snapshot 4 (time 1), node 17"),
    "times": (_with("trajectories/time", _put(1, 0)), "times of snapshots", "snapshots 0 and 1 of trajectory 0"),
    "NaN time": (_with("trajectories/time", _put(3, np.nan)), "times of snapshots", "the time of snapshot 3 is nan"),
    "numbers": (_with("trajectories/number", _put(0, 1)), "times of snapshots", "snapshot 1 has number 0"),
    "splits": (_with("trajectories/split", _put(2, 4)), "splits of snapshots", "snapshot 2 has split 4"),
    "shape": (_with("snapshots/u", lambda array: array[:, :-1]), "snapshots/u", "has shape (6, 59, 2)"),
    "fewer times": (_with("trajectories/number", lambda array: array[1:]), "trajectories/number", "has shape (5,)"),
    "position": (_with("nodes/position", _put((3, 0), np.inf)), "finite positions", "node 3"),
    "volume": (_with("nodes/volume", _put(5, -1)), "volumes", "node 5"),
    "given": (_with("nodes/given", _put(5, 2)), "given nodes", "node 5"),
}


def test_verify_names_what_is_wrong(graph, tmp_path):
    more = {"position": drawn(3)[0], "volume": np.ones(N), "given": np.arange(N) % 2}
    partition_tools.add_snapshots(graph, {"u": drawn()}, trajectories=3, split=[1, 1, 1, 2, 2, 2], **more)
    for name, (damage, check, expected) in FAULTS.items():
        path = tmp_path / "damaged.h5"
        path.write_bytes(graph.read_bytes())
        with h5py.File(path, "r+") as file:
            damage(file)
        found = {each.name: each.detail for each in verify_graph(path) if each.ok is False}
        assert found.keys() == {check} and expected in found[check], (name, found)


def test_memory_does_not_grow_with_the_times():
    """A field of ten times as many times takes no more memory, in windows of one time, of a chunk, or of some rows."""

    class Counted:
        dtype = np.dtype(np.float32)

        def __init__(self, times, chunks):
            self.shape, self.chunks = (times, 20_000, 4), chunks

        def __getitem__(self, place):
            return np.zeros(
                [len(range(*each.indices(size))) for each, size in zip(place, self.shape)] + [4], np.float32
            )

    def peak(times, chunks, buffer_bytes):
        field = PlacedField(Counted(times, chunks), np.random.default_rng(0).permutation(20_000), buffer_bytes)
        tracemalloc.start()
        for time in range(times):
            for start in range(0, 20_000, 4096):
                field[time : time + 1, start : start + 4096]
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    for chunks, buffer_bytes, most in ((None, 1 << 24, 1.5e6), ((8, 512, 4), 1 << 21, 4e6), (None, 1 << 17, 1e6)):
        few, many = peak(3, chunks, buffer_bytes), peak(30, chunks, buffer_bytes)
        assert many < few * 3 if chunks else many < few * 1.1
        assert many < most, (chunks, many)
