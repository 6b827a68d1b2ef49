"""Scattered rows are the rows that were asked for, in a number of reads that follows from the chunks and not from the
rows.
"""

import graphs
import h5py
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hpcgnn.graph.own_rows import read_indptr
from hpcgnn.graphfile import hdf5, storage
from hpcgnn.graphfile.ranges import MOST_CHUNKS, pieces
from hpcgnn.graphfile.storage import GraphFile

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
