"""OGB's sets of link prediction, and held-out edges among named arrays: the very files that their programs write."""

import os

import numpy as np
import pytest
import torch
from partition_helpers import node_data, odd_graph, save_npz, write_csv
from test_links import N, assert_same, expected, held, stored

from hpcgnn.graphfile.storage import GraphFile


def link_folder(folder, split, kind, save=lambda arrays: arrays, features=True, legacy=False):
    """raw/*.csv.gz and split/NAME/{train,valid,test}.pt; returns the held-out edges.

    save: makes the contents of the files of arrays: numpy's, as the archives of OGB have them, or tensors.
    """
    src, dst = odd_graph(N)
    tables = {"edge": np.stack([src, dst], 1), "num-node-list": [[N]], "num-edge-list": [[len(src)]]}
    tables |= {"edge_year": np.full((len(src), 1), 2015)} | ({"node-feat": node_data(N)[0]} if features else {})
    for name, rows in tables.items():
        write_csv(folder / "raw" / f"{name}.csv.gz", rows)
    given, place = held(kind), folder / "split" / split
    place.mkdir(parents=True)
    beside = {"weight": np.ones(3), "year": np.full(3, 2018)}
    train = {"edge": np.stack([src, dst], 1)} if kind == "shared" else {"source_node": src, "target_node": dst}
    for name, arrays in {"train": train, "valid": given["val"], "test": given["test"]}.items():
        arrays = {part: save(array) for part, array in {**arrays, **beside}.items()}
        torch.save(arrays, place / f"{name}.pt", _use_new_zipfile_serialization=not legacy)
    return given


PUBLISHED = {
    "ogbl-collab": ("time", "shared", torch.from_numpy, False),
    "ogbl-ppa": ("throughput", "shared", lambda arrays: arrays, True),
    "ogbl-ddi": ("target", "shared", lambda arrays: arrays, False),
    "ogbl-citation2": ("time", "each", lambda arrays: arrays, True),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sets(cli, imports, tmp_path, name):
    split, kind, save, legacy = PUBLISHED[name]
    folder = tmp_path / "data" / name.replace("-", "_")
    given = link_folder(folder, split, kind, save, features=name != "ogbl-ddi", legacy=legacy)
    options = ["--undirected"] if name != "ogbl-citation2" else []
    said = imports(folder, *options).said
    assert "not read: edge_year" in said and "held-out pairs of val are edges of the graph as well" in said
    assert "12 held-out edges of val, 9 held-out edges of test" in said
    assert_same(stored(tmp_path / "g.h5"), expected(given))
    with GraphFile(tmp_path / "g.h5") as file:
        assert file.meta.undirected == (name != "ogbl-citation2")
        assert file.meta.negatives == kind and file.meta.num_features == (0 if name == "ogbl-ddi" else 5)
    assert cli("verify", tmp_path / "g.h5")[0] == 0


class Bad:
    """An object that would make a folder when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_files_that_are_no_such_files(fails, tmp_path):
    folder = tmp_path / "ogbl_mine"
    link_folder(folder, "time", "shared")
    valid = folder / "split" / "time" / "valid.pt"
    for content, words in (
        ({"edge": Bad(tmp_path / "made")}, "holds what cannot be read without running code"),
        ({"head": np.zeros(3), "relation": np.zeros(3)}, "holds head, relation; expected a dict with edge, or source"),
        ([1, 2], "holds list; expected a dict with edge"),
        ({"edge": np.array([{}, {}])}, "val edge must be an array of numbers"),
        ({"edge": np.zeros((3, 3), int)}, r"val_edge must have shape (m, 2), got (3, 3)"),
    ):
        torch.save(content, valid)
        assert words in fails("import", folder, "-o", tmp_path / "g.h5")
    valid.write_bytes(valid.read_bytes()[:50])
    assert "is not a readable file of torch.save" in fails("import", folder, "-o", tmp_path / "g.h5")
    valid.unlink()
    assert f"there is no {valid}; unpack" in fails("import", folder, "-o", tmp_path / "g.h5")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("kind", ["none", "shared", "each"])
def test_arrays_by_their_names(imports, tmp_path, kind):
    given = held(kind)
    named = {f"{split}_{part}": array for split, parts in given.items() for part, array in parts.items()}
    save_npz(tmp_path / "g.npz", *odd_graph(N), N, **named)
    imports(tmp_path / "g.npz")
    assert_same(stored(tmp_path / "g.h5"), expected(given))
