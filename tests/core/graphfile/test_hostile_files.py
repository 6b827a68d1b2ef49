"""Damaged or foreign graph files: an error in words or the right graph, never a crash, never something else.

The reader is the only thing between a file from somewhere else and kernels that do not look where they write.
"""

import graphs
import h5py
import numpy as np
import pytest
from damage import damaged, damages
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcgnn.comm.communicator import SoloCommunicator
from hpcgnn.errors import HpcgnnError
from hpcgnn.graph.load import check_trainable, load_local_graph
from hpcgnn.graphfile.storage import GraphFile

N = 40
RANDOM = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
EXTREME = [0, 1, -1, 2, N, N - 1, 127, 2**31 - 1, 2**31, -(2**31), 2**32, 2**40, 2**62, -(2**63)]
TYPES = ["<i4", "<i8", ">i8", ">i4", "<u8", "i1", "u1", "<f4", ">f8", "<f2", "S5", "?"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The bytes of good files by kind."""
    folder, files = tmp_path_factory.mktemp("hostile"), {}
    for name, plain, options, sparse in (
        ("undirected", graphs.random_undirected(N), {}, False),
        ("directed", graphs.random_directed(N, weighted=True), {"multi_label": True}, True),
    ):
        graph = graphs.with_task(plain, **options)
        files[name] = graphs.write_file(folder / f"{name}.h5", graph, graphs.layout(graph, 1), 1, sparse).read_bytes()
    return files


def load(path):
    """All that training reads, as one list of arrays; every index in it has been through the checks of the kernels."""
    with GraphFile(path) as file:
        check_trainable(file)
        clusters = np.zeros(file.meta.num_clusters, np.int32)
        local = load_local_graph(file, clusters, SoloCommunicator(), 1 << 20, "add", graphs.torch.float32, True)
    features = local.features.data if file.meta.sparse_features else local.features
    assert features.isfinite().all()
    blocks = [local.inward.own.indptr, local.inward.own.indices, local.outward.own.indices]
    return [*blocks, features, local.labels, local.split, local.original_id]


def same(ones, others):
    return all(graphs.torch.equal(a, b) for a, b in zip(ones, others))


def names(file):
    found = []
    file.visititems(lambda name, item: found.append(name) if isinstance(item, h5py.Dataset) else None)
    return sorted(name for name in found if "partitionings" not in name and "graph" not in name)


@pytest.mark.parametrize("kind", ["undirected", "directed"])
def test_flipped_bits_and_lost_ends(whole, kind, tmp_path):
    """Damage that is not refused was in a part of the file that nothing reads."""
    data, path = whole[kind], tmp_path / "g.h5"
    path.write_bytes(data)
    right = load(path)

    @RANDOM
    @given(*damages(len(data)))
    def check(bit, end):
        path.write_bytes(damaged(data, bit, end))
        try:
            assert same(load(path), right)
        except HpcgnnError as error:
            assert str(path) in str(error)

    check()


@pytest.mark.parametrize("kind", ["undirected", "directed"])
def test_wrong_types_shapes_and_numbers_with_good_checksums(whole, kind, tmp_path):
    """As a faulty or ill-meant writer leaves them."""
    path = tmp_path / "g.h5"
    path.write_bytes(whole[kind])
    right = load(path)
    with h5py.File(path, "r") as file:
        everything = names(file)

    @RANDOM
    @given(
        st.sampled_from(everything),
        st.sampled_from(TYPES),
        st.sampled_from(["same", "shorter", "longer", "two", "none", "scalar"]),
        st.lists(
            st.tuples(st.integers(0, 200), st.sampled_from(EXTREME + [float("nan"), float("inf"), 0.5])), max_size=3
        ),
    )
    def check(name, dtype, shape, values):
        path.write_bytes(whole[kind])
        with h5py.File(path, "r+", libver="latest") as file:
            old = file[name][...]
            with np.errstate(all="ignore"):
                new = old.astype(dtype)
                new = {
                    "shorter": new[:-1],
                    "longer": np.concatenate([new, new[:1]]),
                    "two": new.reshape(*new.shape, 1),
                }.get(shape, new)
                new = new[:0] if shape == "none" else new.ravel()[:1].reshape(()) if shape == "scalar" else new
                for position, value in values:
                    if new.size and np.dtype(dtype).kind in "iuf":
                        new.ravel()[position % new.size] = np.array(value, "f8").astype(dtype)
            del file[name]
            file.create_dataset(name, data=new)
        try:
            found = load(path)
        except HpcgnnError as error:
            assert str(path) in str(error) or "edge" in str(error) or "training split" in str(error)
        else:
            same_values = (
                old.dtype.kind != "b" and new.shape == old.shape and np.array_equal(new.astype(old.dtype), old)
            )
            assert not same_values or same(found, right), "another type or byte order of the same numbers"

    check()


@RANDOM
@given(
    attribute=st.sampled_from(
        ["num_nodes", "num_edges", "num_clusters", "num_classes", "num_features", "num_edge_types"]
    ),
    value=st.sampled_from(EXTREME),
    flags=st.sets(st.sampled_from(["undirected", "multi_label", "sparse_features", "weighted", "typed"])),
)
def test_attributes_that_lie(whole, tmp_path_factory, attribute, value, flags):
    path = tmp_path_factory.mktemp("lies") / "g.h5"
    path.write_bytes(whole["undirected"])
    with h5py.File(path, "r+", libver="latest") as file:
        kept = all((flag in flags) == bool(file.attrs[flag]) for flag in file.attrs if flag in flags)
        kept = kept and file.attrs[attribute] == value
        file.attrs[attribute] = value
        for flag in flags:
            file.attrs[flag] = not file.attrs[flag]
    try:
        load(path)
    except HpcgnnError as error:
        assert str(path) in str(error)
    else:
        # More classes than are used, or types of edges that no edge has, are no lie.
        assert kept or not flags and attribute in ("num_classes", "num_edge_types")


def rewritten(whole, tmp_path, name, **how):
    path = tmp_path / "g.h5"
    path.write_bytes(whole["undirected"])
    with h5py.File(path, "r+", libver="latest") as file:
        old = file[name][...]
        del file[name]
        how.setdefault("data", old)
        file.create_dataset(name, **how)
    return path


def test_filters_of_others_are_refused(whole, tmp_path):
    """For an unknown filter HDF5 loads a library that the environment names; ours need none."""
    with pytest.raises(HpcgnnError, match="filter 32000, which needs a plugin"):
        load(rewritten(whole, tmp_path, "nodes/features", chunks=(5, 5), compression="lzf"))
    load(rewritten(whole, tmp_path, "nodes/features", chunks=(5, 5), compression="gzip", shuffle=True))


def test_float64_features_that_overflow_are_refused(whole, tmp_path):
    with pytest.raises(HpcgnnError, match="NaN or infinite"):
        load(rewritten(whole, tmp_path, "nodes/features", data=np.full((N, 5), 1e200)))
