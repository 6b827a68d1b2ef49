"""Arrays and tables of results that all ranks write at once: the bytes, the messages, and what a full
disk leaves.
"""

import csv
import resource
import shutil

import graphs
import h5py
import numpy as np
import pytest
import torch

from hpcgnn.comm.communicator import SoloCommunicator
from hpcgnn.errors import HpcgnnError
from hpcgnn.graphfile import original_order
from hpcgnn.graphfile.original_order import OriginalOrder, share_of
from hpcgnn.graphfile.own_ids import packed, read_ids
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.outputs import arrays as result_arrays
from hpcgnn.outputs import files
from hpcgnn.outputs.files import Contents

pytestmark = pytest.mark.ranks(2)

NODES, WIDTH = 101, 3
CHOSEN = np.flatnonzero(np.random.default_rng(6).random(NODES) < 0.4)


@pytest.fixture(scope="module")
def graph_files(comm, session_path):
    """{kind of ids: graph file with them}, of which nothing else is read here."""
    graph = graphs.with_task(graphs.all_graphs()[0])
    plain = session_path / "ids-none.h5"
    others = {kind: session_path / f"ids-{kind}.h5" for kind in ("numbers", "words")}
    if comm.rank == 0:
        graphs.write_file(plain, graph, graphs.layout(graph, comm.size), comm.size)
        for kind, path in others.items():
            shutil.copy(plain, path)
            ids = np.arange(NODES) * 7 + 3
            kept = packed(ids if kind == "numbers" else np.array([f"nœud {i}" for i in ids], object))
            with h5py.File(path, "r+") as file:
                if kind == "numbers":
                    file["original/id"] = kept
                else:
                    file["original/id_offsets"], file["original/id_text"] = kept.offsets, kept.text
    comm.barrier()
    return {"": plain, **others}


def rows_of(nodes):
    nodes = torch.as_tensor(nodes)
    return {"prediction": (nodes % 2).unsqueeze(1).int(), "logit": torch.stack([nodes / 3, -nodes, nodes * 0.1], 1)}


def order_of(comm, some, names):
    """An order of rows that are scattered over the ranks; the last of several owns none."""
    draw = np.random.default_rng(5)
    place, owner = draw.permutation(NODES), draw.integers(0, max(1, comm.size - 1), NODES)
    start, stop = share_of(comm.rank, NODES, comm)
    wanted = torch.from_numpy(CHOSEN[(CHOSEN >= start) & (CHOSEN < stop)]) if some else None
    mine = place[owner == comm.rank]
    rows = {name: each for name, each in rows_of(mine).items() if name in names}
    return OriginalOrder(rows, torch.from_numpy(mine), NODES, comm, wanted), place, owner


def write(path, comm, graph, ids="", some=False, names=("prediction", "logit")):
    order, _, _ = order_of(comm, some, names)
    contents = Contents(
        order.num_rows,
        order.widths,
        order.dtypes,
        ("class",),
        some,
        ids,
        np.dtype(np.int64),
        12,
        ("a", "b"),
        {"run": "r"},
    )
    with GraphFile(graph) as file:
        if path.suffix != ".csv":
            result_arrays.write_arrays(path, contents, order, file, comm)
        elif comm.rank:
            order.hand_over()
        else:
            with files.written_csv(path, contents) as put:
                for nodes, slab in order.slabs():
                    put(nodes, read_ids(file, nodes), slab)
    return order


@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize(
    "name, ids, some", [("p.h5", "numbers", True), ("q.h5", "words", True), ("r.h5", "words", False)]
)
def test_the_bytes_are_those_of_one_rank(comm, graph_files, shared_path, monkeypatch, name, ids, some, seen):
    """In slabs of few rows, and where the last rank does not see the file of rank 0."""
    monkeypatch.setattr(original_order, "SLAB_BYTES", 200)
    monkeypatch.setattr(files, "_NUMBERS", 12)
    if not seen and comm.rank == comm.size - 1:
        monkeypatch.setattr(result_arrays, "_is_there", lambda *_: False)
    write(shared_path / name, comm, graph_files[ids], ids, some)
    write(shared_path / "array.npy", comm, graph_files[""], names=("logit",))
    write(shared_path / "lines.csv", comm, graph_files[ids], ids, some)
    if comm.rank == 0:
        write(shared_path / f"alone-{name}", SoloCommunicator(), graph_files[ids], ids, some)
        assert (shared_path / name).read_bytes() == (shared_path / f"alone-{name}").read_bytes()
        nodes = CHOSEN if some else np.arange(NODES)
        with h5py.File(shared_path / name) as file:
            for kind, rows in rows_of(nodes).items():
                np.testing.assert_array_equal(file[kind][:], rows.numpy())
            expected = (nodes * 7 + 3).tolist()
            with open(shared_path / "lines.csv", encoding="utf-8", newline="") as table:
                lines = list(csv.reader(table))
            assert lines[0] == ["node", "id", "class", "class_name", "logit_0", "logit_1", "logit_2"]
            assert [int(line[0]) for line in lines[1:]] == nodes.tolist()
            assert [line[1] for line in lines[1:]] == [f"nœud {i}" if ids == "words" else str(i) for i in expected]
            np.testing.assert_array_equal(np.array([line[4:] for line in lines[1:]], np.float32), file["logit"][:])
            assert [line[3] for line in lines[1:]] == ["ab"[int(line[2])] for line in lines[1:]]
            found = file["id"].asstr()[:].tolist() if ids == "words" else file["id"][:].tolist()
            assert found == ([f"nœud {i}" for i in expected] if ids == "words" else expected)
            assert ("node" in file) == some and file["class_names"].asstr()[:].tolist() == ["a", "b"]
            assert not some or file["node"][:].tolist() == nodes.tolist()
        np.save(shared_path / "numpy.npy", rows_of(np.arange(NODES))["logit"].numpy())
        np.testing.assert_array_equal(np.load(shared_path / "array.npy"), np.load(shared_path / "numpy.npy"))
        assert not list(shared_path.glob(".*.part"))
    comm.barrier()


@pytest.mark.processes
def test_a_rank_gets_its_share_and_no_more(comm, graph_files, shared_path, monkeypatch):
    """Each message has the rows of one owner that one rank keeps; nothing is sent while the file is written."""
    seen, exchange = [], type(comm).exchange

    def watched(self, outgoing, incoming, kind):
        seen.append([each.nbytes for _, each in incoming])
        return exchange(self, outgoing, incoming, kind)

    monkeypatch.setattr(type(comm), "exchange", watched)
    _, place, owner = order_of(comm, False, ("logit",))
    made = sum(seen, [])
    seen.clear()
    write(shared_path / "p.npy", comm, graph_files[""], names=("logit",))
    assert sum(seen, []) == made, "what the order took, and nothing to write it"
    start, stop = share_of(comm.rank, NODES, comm)
    here = owner[(place >= start) & (place < stop)]
    counts = [int((here == (comm.rank - offset) % comm.size).sum()) for offset in range(1, comm.size)]
    sent = [count for count in counts if count]
    assert made == [8 * count for count in sent] + [4 * WIDTH * count for count in sent]


@pytest.mark.processes
def test_a_full_disk_leaves_nothing(comm, graph_files, shared_path):
    """Found by the last rank alone, when it writes its rows."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    if comm.rank == comm.size - 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (600, before[1]))
    try:
        with pytest.raises(HpcgnnError, match=r"cannot write .*p\.npy: File too large") as caught:
            write(shared_path / "p.npy", comm, graph_files[""], names=("logit",))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.everywhere
    comm.barrier()
    assert not list(shared_path.iterdir())
