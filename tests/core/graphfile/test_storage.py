"""The graph file: reading returns the written graph; nothing damaged, foreign or half-written passes for a graph."""

import dataclasses
import fcntl

import graphs
import h5py
import numpy as np
import pytest

from hpcgnn.comm.communicator import SoloCommunicator
from hpcgnn.errors import AccessError, FormatError, GraphError
from hpcgnn.graph.load import load_local_graph
from hpcgnn.graphfile.hdf5 import opened, write_attributes
from hpcgnn.graphfile.storage import GraphFile, add_partitionings, write_graph

GRAPHS = {
    "undirected": (graphs.with_task(graphs.random_undirected()), False),
    "directed weighted": (graphs.with_task(graphs.random_directed(weighted=True)), False),
    "sparse multi-label": (graphs.with_task(graphs.star(), multi_label=True), True),
}


def write(path, name):
    graph, sparse = GRAPHS[name]
    where = graphs.layout(graph, 3)
    data = graphs.graph_data(graph, where.order, where.offsets, sparse)
    return graphs.write_file(path / "g.h5", graph, where, 3, sparse), data


def datasets(path):
    """{name: (position of the first byte of its first chunk, bytes)} of all stored datasets that are not empty."""
    found = {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset) and item.size:
            chunk = item.id.get_chunk_info(0)
            found[name] = chunk.byte_offset, chunk.size

    with h5py.File(path, "r") as file:
        file.visititems(visit)
    return found


def read_everything(path):
    """All that training reads, on one rank; raises HpcgnnError for files that it does not accept."""
    with GraphFile(path) as file:
        for name, ranks in file.partitionings().items():
            for num_ranks in ranks:
                file.cluster_map(name, num_ranks)
        file.cluster_graph()
        load_local_graph(
            file, np.zeros(file.meta.num_clusters, np.int32), SoloCommunicator(), 10, "keep", graphs.torch.float32
        )


def flip(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)


# Of these three every dataset that there is.
@pytest.mark.parametrize("name", ["directed weighted", "sparse multi-label", "typed"])
def test_every_dataset_is_checksummed(tmp_path, name):
    """One flipped bit anywhere in the data is an error that names the file, never a slightly different result."""
    path = tmp_path / "g.h5"
    write_typed(path) if name == "typed" else write(tmp_path, name)
    whole = path.read_bytes()
    for name, (start, size) in datasets(path).items():
        for position in (start, start + size - 1):
            flip(path, position)
            if not name.endswith("/type"):  # which models of types read alone
                with pytest.raises(FormatError, match=str(path)):
                    read_everything(path)
            with GraphFile(path) as file, pytest.raises(FormatError, match="corrupted"):
                file.read(name)
            path.write_bytes(whole)
    read_everything(path)


def test_a_sound_file_that_cannot_be_opened_now_is_not_called_damaged(tmp_path):
    path, _ = write(tmp_path, "undirected")
    with open(path) as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # as HDF5 does for a program that writes
        with pytest.raises(AccessError, match="is open for writing in another program"):
            GraphFile(path)
    marked = tmp_path / "marked.h5"
    with h5py.File(path, "r+", libver="latest"):
        marked.write_bytes(path.read_bytes())  # what is left where the program is killed now
    with pytest.raises(AccessError, match=f"was killed, .* clear its mark with `h5clear -s {marked}`"):
        GraphFile(marked)
    with pytest.raises(AccessError, match="may not be read: Is a directory"):
        opened(tmp_path)


DATASETS = """topology/indptr topology/indices edges/weight topology_out/indices edges_out/weight nodes/features
    nodes/labels nodes/split nodes/original_id clusters/offsets""".split()
ATTRIBUTES = "num_nodes uuid undirected versions num_classes".split()


@pytest.mark.parametrize("name", DATASETS + ATTRIBUTES)
def test_what_is_missing_is_named(tmp_path, name):
    path, _ = write(tmp_path, "directed weighted")
    with h5py.File(path, "r+") as file:
        del (file.attrs if name in ATTRIBUTES else file)[name]
    with pytest.raises(FormatError, match=name):
        read_everything(path)


@pytest.mark.parametrize("kind", ["external link", "soft link", "external storage", "virtual", "maps"])
def test_data_outside_the_file_is_refused(tmp_path, kind):
    """A graph file from a stranger must not make the reader open other files, nor must the list of its maps."""
    path, data = write(tmp_path, "undirected")
    secret, shape = tmp_path / "secret.h5", data.split.shape
    with h5py.File(secret, "w") as file:
        file["split"] = data.split
    (tmp_path / "secret.bin").write_bytes(data.split.tobytes())
    with h5py.File(path, "r+") as file:
        if kind == "maps":
            file["partitionings/elsewhere"] = h5py.ExternalLink(str(secret), "maps")
        else:
            del file["nodes/split"]
        if kind == "external link":
            file["nodes/split"] = h5py.ExternalLink(str(secret), "split")
        elif kind == "soft link":
            file["nodes/split"] = h5py.SoftLink("/nodes/labels")
        elif kind == "external storage":
            outside = [(str(tmp_path / "secret.bin"), 0, len(data.split))]
            file.create_dataset("nodes/split", shape, np.uint8, external=outside)
        elif kind == "virtual":
            virtual = h5py.VirtualLayout(shape, np.uint8)
            virtual[:] = h5py.VirtualSource(str(secret), "split", shape=shape)
            file.create_virtual_dataset("nodes/split", virtual)
    with pytest.raises(FormatError, match="refused"):
        read_everything(path)


@pytest.mark.parametrize(
    "wrong", [np.array([0, 1]), np.full(9, 5), np.full(9, -1)], ids=["too short", "too large", "negative"]
)
def test_a_map_that_is_none_and_a_folder_that_is_not_there_are_refused(tmp_path, wrong):
    path, data = write(tmp_path, "undirected")
    with pytest.raises(FormatError, match="cannot write"):
        write_graph(tmp_path / "absent" / "g.h5", data)
    add_partitionings(path, [("wrong", 3, wrong, {})])
    with GraphFile(path) as file, pytest.raises(GraphError, match="not a map"):
        file.cluster_map("wrong", 3)


def write_typed(path):
    """A file whose edges have types 0 and 1 and whose nodes have types 0 and 1."""
    graph, sparse = GRAPHS["directed weighted"]
    where = graphs.layout(graph, 3)
    data = graphs.graph_data(graph, where.order, where.offsets, sparse)

    def typed(edges):
        return dataclasses.replace(edges, type=(np.arange(len(edges.indices)) % 2).astype(np.int32))

    both = {"edges": typed(data.edges), "edges_out": typed(data.edges_out)}
    write_graph(path, dataclasses.replace(data, **both, node_type=np.arange(data.num_nodes) % 2))


def test_texts_of_variable_length_are_not_written_and_refused(tmp_path):
    """They lie in a part of HDF5's metadata without a checksum, where one flipped bit makes the library loop for
    ever.
    """
    path = tmp_path / "g.h5"
    write_typed(path)
    assert b"GCOL" not in path.read_bytes()
    said = "attribute 'source' of / is refused: expected a number or a text of fixed length"
    for value in (h5py.Empty("f4"), "a text as h5py writes it"):
        with h5py.File(path, "r+", libver="latest") as file:
            file.attrs["source"] = value
        with pytest.raises(FormatError, match=said):
            GraphFile(path)
    assert b"GCOL" in path.read_bytes()


def test_damaged_types_are_errors(tmp_path):
    path = tmp_path / "g.h5"
    write_typed(path)
    with h5py.File(path, "r+", libver="latest") as file:
        file["nodes/type"].resize(2, axis=0)
    with GraphFile(path) as file, pytest.raises(FormatError, match="nodes/type has 2 rows, fewer"):
        file.read("nodes/type", [(0, 3)])
    for text in ("[1]", "not JSON", '{"nodes": 3}'):
        with h5py.File(path, "r+", libver="latest") as file:
            write_attributes(file, type_names=text)
        with pytest.raises(FormatError, match="attribute missing or unreadable"):
            GraphFile(path)
