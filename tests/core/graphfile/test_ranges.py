"""Scattered rows are the rows that were asked for, in a number of reads that follows from the chunks and not from the
rows.
"""

import graphs
import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcgnn.errors import FormatError
from hpcgnn.graph.own_rows import read_indptr
from hpcgnn.graphfile import hdf5, storage
from hpcgnn.graphfile.ranges import MOST_CHUNKS, pieces
from hpcgnn.graphfile.storage import GraphFile
from partition_tools.cli.generate_graph import generate_graph
from partition_tools.cli.partition_graph import partition_graph
from partition_tools.generators.spec import Spec

RANGES = st.lists(
    st.tuples(st.integers(0, 400), st.integers(0, 60)).map(lambda pair: (pair[0], sum(pair))), max_size=40
)


@given(RANGES, st.booleans(), st.integers(1, 50))
def test_pieces_hold_what_is_asked_for_in_its_order_and_little_else(ranges, ascending, chunk_rows):
    ranges = sorted(ranges) if ascending else ranges
    found = list(pieces(ranges, chunk_rows))
    rows = [piece.start + row for piece in found for row in piece.rows()]
    assert rows == [row for start, stop in ranges for row in range(start, stop)]
    for piece in found:
        assert piece.stop - piece.start <= MOST_CHUNKS * chunk_rows
        read = {row // chunk_rows for row in range(piece.start, piece.stop)}
        wanted = {(piece.start + row) // chunk_rows for row in piece.rows()}
        assert read == wanted, "no chunk is read for nothing"


def test_ranks_of_a_scattered_map_read_little_more_than_the_file(tmp_path, monkeypatch):
    """With chunks of 1 MiB 128 ranks read an R-MAT graph 88 times: every rank has a cluster in every chunk."""
    nodes, clusters, ranks = 20_000, 1_024, 128
    generate_graph("rmat", tmp_path / "raw.h5", Spec(nodes=nodes, degree=12, features=64, classes=4, seed=1))
    partition_graph(tmp_path / "raw.h5", [1], num_clusters=clusters, output=tmp_path / "g.h5")
    bytes_read = {}

    def counted(ranges, chunk_rows, *limits):
        for piece in pieces(ranges, chunk_rows, *limits):
            touched = (piece.stop - 1) // chunk_rows - piece.start // chunk_rows + 1
            bytes_read[name] = bytes_read.get(name, 0) + touched * chunk_rows * row_bytes
            yield piece

    monkeypatch.setattr(storage, "pieces", counted)
    names, size, sums = ("topology/indptr", "topology/indices", "nodes/features"), 0, {}
    with GraphFile(tmp_path / "g.h5") as file:
        row_bytes, name = 1, ""
        offsets, indptr = file.read("clusters/offsets"), file.read("topology/indptr")
        bytes_read.clear()
        for name in names:
            dataset = file.file[name]
            row_bytes = dataset.dtype.itemsize * int(np.prod(dataset.shape[1:]))
            bounds = indptr[offsets] if name == "topology/indices" else offsets
            size += dataset.size * dataset.dtype.itemsize
            for rank in range(ranks):
                mine = [(int(bounds[c]), int(bounds[c + 1])) for c in range(rank, clusters, ranks)]
                sums[name] = sums.get(name, 0) + file.read(name, mine).sum(dtype=np.float64)
            assert sums[name] == pytest.approx(file.file[name][: bounds[-1]].sum(dtype=np.float64), rel=1e-6)
    assert size < sum(bytes_read.values()) < 4 * size


def test_a_file_gives_scattered_rows_as_they_are(tmp_path, monkeypatch):
    for module in (hdf5, storage):
        monkeypatch.setattr(module, "CHUNK_BYTES", 128)  # some ten nodes of each dataset
    graph = graphs.with_task(graphs.random_directed(n=150))
    where = graphs.layout(graph, 3)
    path = graphs.write_file(tmp_path / "g.h5", graph, where, 3)
    generator = np.random.default_rng(0)
    with h5py.File(path) as plain, GraphFile(path) as file:
        assert plain["nodes/features"].chunks[0] < 20
        for step in (1, 3, 40):
            firsts = np.arange(0, 150, step)
            ranges = [(first, min(150, first + int(generator.integers(0, step + 1)))) for first in firsts.tolist()]
            rows = np.concatenate([np.arange(*pair) for pair in ranges])
            for name in ("nodes/features", "nodes/original_id", "nodes/split"):
                np.testing.assert_array_equal(file.read(name, ranges), plain[name][:][rows])
            indptr, spans = read_indptr(file, "topology", ranges)
            whole = plain["topology/indptr"][:]
            np.testing.assert_array_equal(np.diff(indptr), np.diff(whole)[rows])
            assert indptr[0] == 0 and indptr.dtype == np.int64
            assert spans == [(int(whole[start]), int(whole[stop])) for start, stop in ranges]


def test_an_index_that_falls_is_named_by_its_rows(tmp_path):
    graph = graphs.with_task(graphs.random_directed())
    path = graphs.write_file(tmp_path / "g.h5", graph, graphs.layout(graph, 3), 3)
    with h5py.File(path, "r+") as file:
        file["topology/indptr"][8] = file["topology/indptr"][9] + 1
    with GraphFile(path) as file:
        with pytest.raises(FormatError, match=r"not monotone within 0..\d+ in rows 7..10"):
            read_indptr(file, "topology", [(0, 2), (3, 5), (7, 10), (11, 12)])
        read_indptr(file, "topology", [(0, 2), (3, 5), (10, 12)])
        assert read_indptr(file, "topology", [])[1] == []
