"""Arrays and tables of results: the bytes, and the messages that bring rows into order. Tables: app/test_predict.py."""

from dataclasses import replace
from types import SimpleNamespace

import graphs
import h5py
import numpy as np
import pytest
import torch

from hpcgnn.app.predict import Source, write_rows
from hpcgnn.comm.communicator import SoloCommunicator
from hpcgnn.graphfile import original_order
from hpcgnn.graphfile.original_order import OriginalOrder, share_of
from hpcgnn.graphfile.own_ids import packed
from hpcgnn.graphfile.storage import GraphFile
from hpcgnn.outputs import files
from hpcgnn.tasks.registry import TASKS

pytestmark = pytest.mark.ranks(2)

NODES, WIDTH = 101, 3
CHOSEN = np.flatnonzero(np.random.default_rng(6).random(NODES) < 0.4)


@pytest.fixture(scope="module")
def graph_files(comm, session_path):
    """{kind of ids: graph file with them}; nothing else in the files is read here."""
    graph = graphs.with_task(graphs.random_undirected(NODES))
    found = {kind: session_path / f"ids-{kind}.h5" for kind in ("numbers", "words")}
    if comm.rank == 0:
        for kind, path in found.items():
            graphs.write_file(path, graph, graphs.layout(graph, comm.size), comm.size)
            ids = np.arange(NODES) * 7 + 3
            kept = packed(ids if kind == "numbers" else np.array([f"nœud {i}" for i in ids], object))
            with h5py.File(path, "r+") as file:
                if kind == "numbers":
                    file["original/id"] = kept
                else:
                    file["original/id_offsets"], file["original/id_text"] = kept.offsets, kept.text
    comm.barrier()
    return found


def rows_of(nodes):
    nodes = torch.as_tensor(nodes)
    return {"prediction": (nodes % 2).unsqueeze(1).int(), "logit": torch.stack([nodes / 3, -nodes, nodes * 0.1], 1)}


def scattered(comm):
    """(owner of each place, original id of each place): the last of several ranks owns none."""
    draw = np.random.default_rng(5)
    place, owner = draw.permutation(NODES), draw.integers(0, max(1, comm.size - 1), NODES)
    return place, owner


def write(path, comm, graph, some):
    place, owner = scattered(comm)
    mine = place[owner == comm.rank]
    with GraphFile(graph) as file:
        meta = replace(file.meta, type_names={"classes": ("a", "b")})
    local = SimpleNamespace(original_id=torch.from_numpy(mine), num_nodes=NODES)
    source = Source(graph, meta, TASKS["classification"], {"run": "r"})
    wanted = CHOSEN if some and comm.rank == 0 else None
    return write_rows(path, rows_of(mine), local, source, comm, wanted)


@pytest.mark.parametrize("ids, some", [("numbers", True), ("words", True), ("words", False)])
def test_the_bytes_are_those_of_one_rank(comm, graph_files, shared_path, monkeypatch, ids, some):
    """In slabs of few rows."""
    monkeypatch.setattr(original_order, "SLAB_BYTES", 200)
    monkeypatch.setattr(files, "_NUMBERS", 12)
    for name in ("p.h5", "p.csv"):
        write(shared_path / name, comm, graph_files[ids], some)
        if comm.rank == 0:
            write(shared_path / f"alone-{name}", SoloCommunicator(), graph_files[ids], some)
            assert (shared_path / name).read_bytes() == (shared_path / f"alone-{name}").read_bytes()
    if comm.rank == 0:
        nodes = CHOSEN if some else np.arange(NODES)
        expected = [f"nœud {i}" if ids == "words" else i for i in (nodes * 7 + 3).tolist()]
        with h5py.File(shared_path / "p.h5") as file:
            for kind, rows in rows_of(nodes).items():
                np.testing.assert_array_equal(file[kind][:], rows.numpy().reshape(file[kind].shape))
            assert (file["id"].asstr() if ids == "words" else file["id"])[:].tolist() == expected
            assert ("node" in file) == some
            assert not some or file["node"][:].tolist() == nodes.tolist()
        assert not list(shared_path.glob(".*.part"))
    comm.barrier()


@pytest.mark.processes
def test_a_rank_gets_its_share_and_no_more(comm, monkeypatch):
    """Each message has the rows of one owner that one rank keeps."""
    seen, exchange = [], type(comm).exchange

    def watched(self, outgoing, incoming, kind):
        seen.extend(each.nbytes for _, each in incoming)
        return exchange(self, outgoing, incoming, kind)

    monkeypatch.setattr(type(comm), "exchange", watched)
    place, owner = scattered(comm)
    mine = place[owner == comm.rank]
    OriginalOrder({"logit": rows_of(mine)["logit"]}, torch.from_numpy(mine), NODES, comm)
    start, stop = share_of(comm.rank, NODES, comm)
    here = owner[(place >= start) & (place < stop)]
    counts = [int((here == (comm.rank - offset) % comm.size).sum()) for offset in range(1, comm.size)]
    sent = [count for count in counts if count]
    assert seen == [8 * count for count in sent] + [4 * WIDTH * count for count in sent]
