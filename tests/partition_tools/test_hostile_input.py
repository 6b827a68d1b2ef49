"""Damaged or wrong input: one line of error, or the graph that the input describes. Nothing else.

Everything goes through the command line, in this process. An exception of any other kind, a crash, or a file left
half-written then fails the test. Memory is bounded while it runs: a count in a header must not become an allocation.
"""

import contextlib
import gzip
import io
import resource
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from damage import damaged, damages
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from partition_helpers import node_data, odd_graph, save_npz, view
from test_spellings import HEADED, LISTS, TABLES, named, words_of

from hpcgnn.errors import GraphError
from hpcgnn.graph.load import check_trainable
from hpcgnn.graphfile.storage import GraphFile
from partition_tools.cli.main import main
from partition_tools.graph import edges
from partition_tools.graph.loading import load_graph

N = 30
MOST_BYTES = 2 << 30
SRC, DST = odd_graph(N, 80)
FEATURES, LABELS, MASKS = node_data(N)
MANY = settings(
    phases=[Phase.generate], max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)


@contextlib.contextmanager
def little_memory():
    """No more than MOST_BYTES beyond the memory in use."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def imported(capsys, source, target, *options):
    """Import with these options, check the rules of success and failure, and return whether there is a graph then."""
    target.unlink(missing_ok=True)
    with little_memory():
        code = main(["import", str(source), "-o", str(target), *map(str, options)])
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("partition_tools: error")]
    assert (code, len(said)) in ((0, 0), (2, 1)), said
    assert target.exists() == (code == 0)
    assert not list(target.parent.glob(".*")), "half-written files or locks"
    if code == 0:
        with GraphFile(target) as file:
            data = load_graph(file)  # checks all indices
            with contextlib.suppress(GraphError):  # no features or labels: it cannot be trained on, and says so
                check_trainable(file)
            if data.features is not None and not file.meta.sparse_features:
                assert np.isfinite(data.features[0 : data.num_nodes]).all()
            labels = data.labels
            assert labels.min(initial=0) >= -1 and labels.max(initial=-1) < max(data.num_classes, 1)
    return code == 0


def arrays():
    """The arrays of a good archive."""
    file, kind = io.BytesIO(), np.arange(len(SRC)) % 2
    save_npz(file, SRC, DST, N, edge_weight=np.linspace(0.5, 1, len(SRC)), edge_type=kind, node_type=np.arange(N) % 2)
    return dict(np.load(io.BytesIO(file.getvalue())))


def sparse_arrays():
    rows = scipy.sparse.random(N, 9, 0.2, "csr", np.float32, np.random.default_rng(1))
    rest = {name: array for name, array in arrays().items() if name not in ("x", "y", "train_mask", "val_mask")}
    rest |= {f"x_{name}": np.array(getattr(rows, name)) for name in ("indptr", "indices", "data", "shape")}
    splits = {"train_idx": np.flatnonzero(MASKS["train"]), "idx_val": np.flatnonzero(MASKS["val"])}
    return rest | splits | {"y": np.array(list("abcd"))[LABELS]}


SPLITS = named(HEADED, s_csv="split\ntrain\nvalid\n\ntest\n", y_csv="label\n0\n1\n0\n1\n")
#: {the file that is damaged: (files, options)}.
TEXTS = {
    "e.csv": LISTS["headed"],
    "e.csv.gz": LISTS["gzip"],
    "e.mtx": LISTS["mtx"],
    "x.csv": TABLES["row numbers"][:2],
    "y.csv": TABLES["ids of text"][:2],
    "s.csv": (SPLITS, "--labels y.csv --splits s.csv"),
}


def test_archives_with_flipped_bits_and_lost_ends(capsys, tmp_path):
    """The archive has checksums: an accepted archive gives the original graph."""
    path, target = tmp_path / "g.npz", tmp_path / "g.h5"
    save_npz(path, SRC, DST, N)
    data = path.read_bytes()
    assert imported(capsys, path, target)
    right = target.read_bytes()

    @MANY
    @given(*damages(len(data)))
    def check(bit, end):
        path.write_bytes(damaged(data, bit, end))
        if imported(capsys, path, target):
            with GraphFile(target) as file:
                uuid = file.meta.uuid
            target.write_bytes(right)
            with GraphFile(target) as file:
                # An array whose name in the archive's list is damaged is not there.
                assert uuid == file.meta.uuid or any(name not in np.load(path).files for name in ARRAYS)

    check()


ARRAYS = ("edge_index", "x", "y", "train_mask", "val_mask", "test_mask", "num_classes")
TYPES = ["<i4", ">i8", "<u8", "i1", "<f4", ">f8", "<f2", "<c8", "S3", "U2", "?", "O", "<M8[s]", "<i4,<i4"]
EXTREME = [0, 1, -1, N, 127, 2**31 - 1, 2**31, 2**33, 2**62, -(2**63), 0.5, float("nan"), float("inf"), -1e30]


@pytest.mark.parametrize("make", [arrays, sparse_arrays])
def test_arrays_of_wrong_types_shapes_and_numbers(capsys, tmp_path, make):
    path, target, good = tmp_path / "g.npz", tmp_path / "g.h5", make()

    @MANY
    @given(
        st.sampled_from(sorted(good)),
        st.sampled_from([None, *TYPES]),
        st.sampled_from(["same", "none", "shorter", "scalar", "more axes", "turned"]),
        st.lists(st.tuples(st.integers(0, 500), st.sampled_from(EXTREME)), max_size=2),
    )
    def check(name, dtype, shape, values):
        with np.errstate(all="ignore"):
            array = np.array(good[name])
            for position, value in values:
                if array.size:
                    number = np.float64(value)
                    array.reshape(-1)[position % array.size] = (
                        number.astype(array.dtype) if array.dtype.kind in "iufb" else array.reshape(-1)[0]
                    )
            if dtype is not None:
                try:
                    array = array.astype(dtype)
                except (TypeError, ValueError):
                    return
        array = {
            "none": array[..., :0] if array.ndim else np.zeros(0, array.dtype),
            "shorter": array[..., 1:] if array.ndim else array,
            "scalar": array.reshape(-1)[:1].reshape(()) if array.size else array,
            "more axes": array[None],
            "turned": array.T,
        }.get(shape, array)
        np.savez(path, **good | {name: array})
        imported(capsys, path, target)

    check()


def test_headers_that_promise_more_than_there_is(capsys, tmp_path):
    """A few bytes that claim 2^60 numbers, in an archive that is otherwise whole."""
    path, target = tmp_path / "g.npz", tmp_path / "g.h5"
    for shape in ("(2, 1152921504606846976)", "(2, 9223372036854775807)", "(2, -5)", "(2, 3.5)", "(2,) + (3,)"):
        header = f"{{'descr': '<i8', 'fortran_order': False, 'shape': {shape}, }}"
        header += " " * (63 - (10 + len(header)) % 64) + "\n"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(
                "edge_index.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
            )
        assert not imported(capsys, path, target)


NUMBERS = "-1 3.5 nan inf 1e400 2147483648 9223372036854775808 4000000000 0x10 1_0".split()
BAD_WORDS = ["", *NUMBERS, "word", "1,2,3,4", '"', "\x00", "#", "%%", "\t", "é", "3 4", "id"]


@pytest.mark.parametrize("name", TEXTS)
def test_tables_with_damaged_lines(capsys, tmp_path, name):
    _, source, _, target, *options = words_of(tmp_path, *TEXTS[name])
    path = tmp_path / name
    packed = path.suffix == ".gz"
    original = path.read_bytes()
    text = gzip.decompress(original) if packed else original
    lines = text.decode().splitlines(keepends=True)

    @MANY
    @given(
        st.integers(0, len(lines) - 1),
        st.sampled_from(["word", "line", "drop", "twice", "bytes", "empty"]),
        *damages(len(original)),
        st.sampled_from(BAD_WORDS),
    )
    def check(line, what, bit, end, word):
        changed = list(lines)
        if what in ("word", "line"):
            fields = changed[line].rstrip("\n")
            separator = "," if "," in fields else "\t" if "\t" in fields else " "
            parts = fields.split(separator)
            parts[bit % len(parts)] = word
            changed[line] = (separator.join(parts) if what == "word" else word) + "\n"
        else:
            changed[line : line + 1] = {"twice": [changed[line]] * 2, "bytes": [changed[line]]}.get(what, [])
        content = "".join(changed).encode() if what != "empty" else b""
        content = gzip.compress(content) if packed else content
        path.write_bytes(damaged(original, bit, end) if what == "bytes" else content)
        imported(capsys, source, target, *options)

    assert imported(capsys, source, target, *options)
    check()


EDGES, BARE = [[0, 1], [1, 2]], {"x": None, "y": None}
ODD = {
    "one node": ([[0], [0]], {}, True),
    "isolated nodes only": (np.zeros((2, 0), int), {}, True),
    "self loops only": ([[0, 1, 2], [0, 1, 2]], {}, True),
    "the same edge only": ([[0] * 9, [1] * 9], {}, True),
    "an id above 2^31": ([[0, 2**31 + 5], [1, 2]], BARE, False),
    "an id near 2^63": ([[0, 2**63 - 1], [1, 2]], BARE, False),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_graphs(capsys, tmp_path, name):
    ends, changes, outcome = ODD[name]
    masks = {f"{name}_mask": None for name in MASKS}
    save_npz(tmp_path / "g.npz", SRC, DST, N, edge_index=np.array(ends), **masks | {"num_classes": None} | changes)
    assert imported(capsys, tmp_path / "g.npz", tmp_path / "g.h5") == outcome


def test_ids_that_need_64_bits(capsys, tmp_path, monkeypatch):
    """With the limit lowered to 10 the same graph has its ids in 64 bits, is clustered, and is the same."""
    files = []
    for limit in (edges.MOST_INT32, 10):
        monkeypatch.setattr(edges, "MOST_INT32", limit)
        path = tmp_path / f"{limit}.h5"
        save_npz(tmp_path / "g.npz", SRC, DST, N, edge_weight=np.linspace(0.5, 1, len(SRC)))
        assert imported(capsys, tmp_path / "g.npz", path, "--set", "edges.self_loops=add")
        assert main(["partition", "add", str(path), "--ranks", "2", "--clusters", "4"]) == 0
        assert main(["verify", str(path)]) == 0
        with GraphFile(path) as file:
            assert file.dtype("topology/indices") == (np.int32 if limit > 10 else np.int64)
        files.append(view(path))
    for name in ("edges", "out"):
        assert getattr(files[0], name) == getattr(files[1], name)
    np.testing.assert_array_equal(files[0].features, files[1].features)
