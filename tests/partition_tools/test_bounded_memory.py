"""An import in little memory, through mapped arrays and files of the scratch directory, writes the very same file."""

import gzip
import tracemalloc

import h5py
import numpy as np
import pytest
from partition_helpers import node_data, odd_graph, save_npz

from partition_tools.cli.import_graph import import_graph
from partition_tools.readers.arrays.named_arrays import ArrayOptions
from partition_tools.readers.formats import SOURCES
from partition_tools.readers.tables.tables import TableOptions
from partition_tools.workspace.scratch import Scratch
from partition_tools.workspace.working import Resources

N = 60
# So little that the larger arrays of these graphs are large; and that the texts are.
TINY, LITTLE = 1 << 13, 1 << 15


def contents(path):
    """Every dataset of a file, and the attributes that describe the graph."""
    found = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, node: found.update({name: node[()]}) if isinstance(node, h5py.Dataset) else None)
        found.update({f"@{name}": value for name, value in file.attrs.items() if name != "created"})
    return found


def assert_same_file(one, other):
    one, other = contents(one), contents(other)
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
        assert np.asarray(one[name]).dtype == np.asarray(other[name]).dtype, name


def both_ways(path, folder, memory=TINY, **options):
    """Import in plenty of memory and in little; the files must be equal."""
    one = import_graph(path, folder / "plenty.h5", resources=Resources(memory=1 << 30), force=True, **options)
    other = import_graph(path, folder / "little.h5", resources=Resources(memory=memory), force=True, **options)
    assert one.uuid == other.uuid
    assert_same_file(folder / "plenty.h5", folder / "little.h5")
    assert not list(folder.glob(".*.work"))
    return one


def test_a_folder_of_npy_files(cli, tmp_path):
    save_npz(tmp_path / "g.npz", *odd_graph(), N)
    (tmp_path / "g").mkdir()
    with np.load(tmp_path / "g.npz") as archive:
        for name in archive.files:
            np.save(tmp_path / "g" / f"{name}.npy", archive[name])
    both_ways(tmp_path / "g", tmp_path)
    import_graph(tmp_path / "g.npz", tmp_path / "of_archive.h5")
    assert_same_file(tmp_path / "of_archive.h5", tmp_path / "little.h5")


def write_edges(path, columns, head=(), separator="\t"):
    lines = [*head, *(separator.join(map(str, row)) for row in zip(*columns))]
    write_text(path, "\n".join(lines) + "\n")


def write_text(path, text):
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


@pytest.mark.parametrize("name, weight", [("e.txt", "real"), ("e.txt.gz", "whole")])
def test_edge_list(tmp_path, name, weight):
    src, dst = odd_graph(edges=2000)
    random = np.random.default_rng(5)
    weights = random.integers(1, 9, len(src)) if weight == "whole" else random.random(len(src)).round(4)
    head = ["# a comment", "src\tdst\tweight\ttype\t_"]
    write_edges(tmp_path / name, [src, dst, weights, random.integers(0, 3, len(src)), src], head)
    np.save(tmp_path / "x.npy", node_data(N)[0])
    both_ways(tmp_path / name, tmp_path, LITTLE, tables=TableOptions(features=tmp_path / "x.npy"))


@pytest.mark.parametrize("spread, sign", [(3, 1), (10**12, -1)], ids=["near", "far apart"])
def test_relabelled_edge_list(tmp_path, spread, sign):
    """Ids with gaps, near one another (a table has them) or far apart (a search finds them)."""
    src, dst = (sign * (spread * ends + 7) for ends in odd_graph(edges=2000))
    write_edges(tmp_path / "e.txt", [src, dst], ["# FromNodeId\tToNodeId"])
    ids = sign * (spread * np.arange(N) + 7)
    (tmp_path / "y.csv").write_text("id,label\n" + "".join(f"{node},{node % 3}\n" for node in ids))
    data = both_ways(tmp_path / "e.txt", tmp_path, LITTLE, tables=TableOptions(relabel=True, labels=tmp_path / "y.csv"))
    assert data.num_nodes == N


@pytest.mark.parametrize("words", [["01", "2", "3"], ["1", "2", str(2**64 - 1)], ["1", "NA", "nan"]])
def test_ids_that_only_the_whole_column_explains(tmp_path, words):
    ends = np.array(words)[np.random.default_rng(0).integers(0, 3, (2, 2000))]
    write_edges(tmp_path / "e.txt", ends, ["src\tdst"])
    assert both_ways(tmp_path / "e.txt", tmp_path, LITTLE, tables=TableOptions(relabel=True)).num_nodes == 3


@pytest.mark.parametrize("relabel, spread", [(False, 1), (True, 10**12)])
def test_little_memory_is_enough(tmp_path, relabel, spread):
    """A reader's peak memory is small compared with the edges, whose ids belong to few nodes."""
    random = np.random.default_rng(0)
    src, dst = random.integers(0, 2000, (2, 150_000)) * spread
    write_edges(tmp_path / "e.txt", [src, dst])
    np.savez_compressed(tmp_path / "g.npz", src=src, dst=dst, num_nodes=2000)
    sources = [("edgelist", "e.txt", TableOptions(relabel=relabel)), ("npz", "g.npz", ArrayOptions())]
    for source, name, options in sources[: 1 if relabel else 2]:
        # Modules that the first call loads are not meant.
        SOURCES[source].read(tmp_path / name, options, Scratch(tmp_path / "first", 1 << 19))
        work = Scratch(tmp_path / "work", 1 << 19)
        tracemalloc.start()
        raw = SOURCES[source].read(tmp_path / name, options, work)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert len(raw.src) == 150_000 and peak < 1 << 20 < src.nbytes, peak
