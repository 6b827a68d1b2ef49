"""Published data sets by their names: found where their downloads leave them, read as they are, in much memory and
little.
"""

import shutil

import dataset_layouts as layouts
import numpy as np
import pytest
from dataset_layouts import N
from partition_helpers import edge_list, node_data, view
from test_bounded_memory import both_ways

from hpcgnn.graphfile.storage import GraphFile
from partition_tools.readers.datasets import DATASETS, listing

FEATURES, LABELS, MASKS = node_data(N)
CODES = sum(MASKS[name] * code for name, code in (("train", 1), ("val", 2), ("test", 3)))


def imported(cli, tmp_path, name, *more):
    code, out, err = cli("import", "--dataset", name, "--root", tmp_path / "data", "-o", tmp_path / "g.h5", *more)
    assert code == 0, err
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    return view(tmp_path / "g.h5"), err


def check_nodes(seen, labels=LABELS):
    np.testing.assert_array_equal(seen.features, FEATURES)
    np.testing.assert_array_equal(seen.labels, labels)
    np.testing.assert_array_equal(seen.split, CODES)


def in_both_directions(src, dst):
    pairs = set(zip(src.tolist(), dst.tolist()))
    return edge_list(*zip(*sorted(pairs | {(d, s) for s, d in pairs})))


@pytest.mark.parametrize("place", ["ogbn_arxiv", "dataset/ogbn_arxiv", "arxiv", "."])
def test_arxiv(cli, tmp_path, place):
    src, dst = layouts.ogb_text(tmp_path / "data" / place, "time")
    seen, err = imported(cli, tmp_path, "ogbn-arxiv")
    assert seen.edges == seen.out == edge_list(src, dst)
    assert seen.meta.source == "ogbn-arxiv" and seen.meta.num_classes == 40
    check_nodes(seen)
    assert "60 nodes were read, and 169,343 are published" in err and "usually it is imported with --undirected" in err
    seen, err = imported(cli, tmp_path, "OGBN-Arxiv", "--undirected", "--force")
    assert seen.edges == in_both_directions(src, dst) and "usually" not in err
    both_ways(tmp_path / "data", tmp_path, dataset="ogbn-arxiv")


def test_a_large_arxiv(tmp_path):
    """So many edges that they are parsed in several blocks."""
    layouts.ogb_text(tmp_path / "data" / "ogbn_arxiv", "time", edges=3000)
    both_ways(tmp_path / "data", tmp_path, dataset="ogbn-arxiv")


def test_products(cli, tmp_path):
    """One direction of each edge is published; of two splits the published one is taken."""
    src, dst = layouts.ogb_text(tmp_path / "data" / "ogbn_products", "sales_ranking")
    shutil.copytree(tmp_path / "data/ogbn_products/split/sales_ranking", tmp_path / "data/ogbn_products/split/other")
    (tmp_path / "data/ogbn_products/split/other/train.csv.gz").unlink()
    seen, err = imported(cli, tmp_path, "ogbn-products")
    assert seen.edges == in_both_directions(src, dst) and seen.meta.undirected and "reverse edges are added" in err
    check_nodes(seen)


def test_proteins(cli, tmp_path):
    """Features of edges, none of nodes, and one direction of each edge is published."""
    folder = tmp_path / "data" / "ogbn_proteins"
    src, dst = layouts.ogb_text(folder, "species")
    (folder / "raw" / "node-feat.csv.gz").unlink()
    rows = np.random.default_rng(0).random((len(src), 8)).astype(np.float32)
    layouts.write_csv(folder / "raw" / "edge-feat.csv.gz", rows)
    seen, err = imported(cli, tmp_path, "ogbn-proteins")
    assert seen.edges == in_both_directions(src, dst) and seen.meta.num_edge_features == 8 and seen.features is None
    first = {}
    for source, target, row in zip(src.tolist(), dst.tolist(), rows):
        first.setdefault((min(source, target), max(source, target)), row)
    with GraphFile(tmp_path / "g.h5") as file:
        expected = [first[min(s, t), max(s, t)] for t, s, *_ in seen.edges]
        np.testing.assert_array_equal(file.read("edges/features"), expected)
    both_ways(tmp_path / "data", tmp_path, dataset="ogbn-proteins")


def test_mag(cli, tmp_path):
    folder = tmp_path / "data" / "ogbn_mag"
    counts = {"author": 9, "paper": N}
    relations = [("author", "writes", "paper"), ("paper", "cites", "paper")]
    random = np.random.default_rng(0)
    layouts.write_csv(folder / "raw/num-node-dict.csv.gz", [counts, counts.values()])
    layouts.write_csv(folder / "raw/triplet-type-list.csv.gz", relations)
    expected = []
    for kind, (head, name, tail) in enumerate(relations):
        ends = np.stack([random.integers(0, counts[head], 300), random.integers(0, counts[tail], 300)], 1)
        layouts.write_csv(folder / f"raw/relations/{head}___{name}___{tail}/edge.csv.gz", ends)
        layouts.write_csv(folder / f"raw/relations/{head}___{name}___{tail}/num-edge-list.csv.gz", [[300]])
        expected += edge_list(ends[:, 0] + 9 * kind, ends[:, 1] + 9, None, [kind] * 300)
    layouts.write_csv(folder / "raw/node-feat/paper/node-feat.csv.gz", FEATURES)
    layouts.write_csv(folder / "raw/node-label/paper/node-label.csv.gz", LABELS[:, None])
    layouts.write_split(folder / "split/time/paper", MASKS)
    seen, err = imported(cli, tmp_path, "ogbn-mag")
    assert seen.edges == sorted(expected) and "--add-reverse" in err
    np.testing.assert_array_equal(seen.features[9:], FEATURES)
    np.testing.assert_array_equal(seen.labels, [*[-1] * 9, *LABELS])
    np.testing.assert_array_equal(seen.split, [*[0] * 9, *CODES])
    both_ways(tmp_path / "data", tmp_path, dataset="ogbn-mag")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("place", ["ogbn_papers100M", "papers100M-bin"])
def test_papers100m(cli, tmp_path, save, place):
    src, dst = layouts.ogb_binary(tmp_path / "data" / place, save)
    assert layouts.stored_uncompressed(tmp_path / "data" / place / "raw/data.npz") == (save is np.savez)
    seen, err = imported(cli, tmp_path, "ogbn-papers100M")
    assert seen.edges == edge_list(src, dst) and "not read: node_year" in err
    check_nodes(seen, np.where(CODES > 0, LABELS, -1))
    both_ways(tmp_path / "data", tmp_path, dataset="ogbn-papers100M")


def test_the_list_of_names(cli):
    with pytest.raises(SystemExit) as end:
        cli("import", "--dataset", "list")
    assert end.value.code == 0
    assert len(listing().splitlines()) == len(DATASETS) + 1
    assert "111,059,956" in listing()


def command(tmp_path, name, *more):
    return ("import", "--dataset", name, "--root", tmp_path / "data", "-o", tmp_path / "g.h5", *more)


def test_where_the_files_are_not(fails, tmp_path):
    assert "there is no directory" in fails(*command(tmp_path, "ogbn-arxiv"))
    (tmp_path / "data").mkdir()
    error = fails(*command(tmp_path, "ogbn-arxiv"))
    for place in ("ogbn_arxiv", "dataset/ogbn_arxiv", "arxiv"):
        assert str(tmp_path / "data" / place) in error
    assert "https://ogb.stanford.edu/docs/nodeprop/; nothing is downloaded here" in error
    layouts.ogb_text(tmp_path / "data" / "arxiv", "time")
    (tmp_path / "data/arxiv/raw/node-label.csv.gz").unlink()
    assert f"{tmp_path / 'data/arxiv'} has no raw/node-label.csv.gz" in fails(*command(tmp_path, "ogbn-arxiv"))


@pytest.mark.parametrize("name", ["reddit", "igb-full-2k", "com-orkut", "Twitter-2010"])
def test_names_that_are_gone(fails, tmp_path, name):
    assert f"--dataset {name} is gone; docs/datasets.md has the recipe" in fails(*command(tmp_path, name))


def test_options_that_do_not_go_together(fails, tmp_path):
    layouts.ogb_text(tmp_path / "data" / "ogbn_arxiv", "time")
    assert "unknown data set 'ogbn-arxi': did you mean ogbn-arxiv?" in fails(*command(tmp_path, "ogbn-arxi"))
    assert "expected either INPUT or --dataset" in fails("import", "-o", tmp_path / "g.h5")
    assert "expected either INPUT or --dataset" in fails(*command(tmp_path, "ogbn-arxiv"), tmp_path / "data")
    assert "needs --root DIR" in fails("import", "--dataset", "ogbn-arxiv", "-o", tmp_path / "g.h5")
    assert "takes no --format" in fails(*command(tmp_path, "ogbn-arxiv", "--format", "npz"))
    assert "--root is for" in fails("import", tmp_path / "x.npz", "--root", tmp_path, "-o", tmp_path / "g.h5")
    assert "ogbn-arxiv has its own arrays" in fails(*command(tmp_path, "ogbn-arxiv", "--relabel"))


def cut(path):
    data = path.read_bytes()
    path.write_bytes(data[: 2 * len(data) // 3])


def test_damaged_text(fails, tmp_path):
    layouts.ogb_text(tmp_path / "data" / "ogbn_arxiv", "time", edges=2000)
    for name in ("node-feat", "edge"):
        cut(tmp_path / f"data/ogbn_arxiv/raw/{name}.csv.gz")
        assert f"{name}.csv.gz is not a readable table" in fails(*command(tmp_path, "ogbn-arxiv"))


def test_edges_beyond_the_nodes(fails, tmp_path):
    layouts.ogb_binary(tmp_path / "data" / "ogbn_papers100M")
    path = tmp_path / "data/ogbn_papers100M/raw/data.npz"
    arrays = dict(np.load(path))
    np.savez(path, **arrays | {"edge_index": arrays["edge_index"] + 2})
    assert "outside the nodes" in fails(*command(tmp_path, "ogbn-papers100M"))
    np.savez(path, **arrays | {"num_edges_list": np.array([7])})
    assert "num_edges_list states 7" in fails(*command(tmp_path, "ogbn-papers100M"))
