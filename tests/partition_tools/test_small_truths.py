"""Inputs that were read without a word, or refused with the wrong one."""

import warnings

import numpy as np
import pytest

import partition_tools
from hpcgnn.errors import FormatError, GraphError
from hpcgnn.graphfile.storage import GraphFile
from partition_tools.cli.import_graph import import_graph

RING = np.array([np.arange(30), np.roll(np.arange(30), 1)])
X = np.random.default_rng(1).standard_normal((30, 4)).astype(np.float32)


def said(tmp_path, labels):
    """All warnings about a graph with these labels."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        partition_tools.save_graph(tmp_path / "g.h5", RING, X, labels, {"train": np.arange(10)})
    return " ".join(str(each.message) for each in caught)


def test_labels_that_count_from_one(tmp_path):
    assert "count from 1 make 4 classes with an empty one" in said(tmp_path, np.arange(30) % 3 + 1)


def test_labels_of_which_the_first_is_unused_by_chance(tmp_path):
    """From 2 on they do not count from 1, and words have their own numbers."""
    assert "count from 1" not in said(tmp_path, np.arange(30) % 3 + 2)


def test_one_class_for_all(tmp_path):
    assert "all 30 labelled nodes have class 0; a model has nothing to tell apart" in said(
        tmp_path, np.zeros(30, np.int64)
    )


def test_classes_as_usual(tmp_path):
    err = said(tmp_path, np.arange(30) % 3)
    assert "class" not in err


def test_features_that_are_transposed(tmp_path):
    np.savez(tmp_path / "g.npz", edge_index=RING, x=X.T, y=np.arange(30) % 3, train_mask=np.arange(30) < 10)
    with pytest.raises(GraphError, match=r"features of shape \(4, 30\).* turn them: features.T"):
        import_graph(tmp_path / "g.npz", tmp_path / "g.h5", format="npz")
    with pytest.raises(GraphError, match=r"features of shape \(4, 30\).* turn them: features.T"):
        partition_tools.save_graph(tmp_path / "s.h5", RING, X.T, np.arange(30) % 3, {"train": np.arange(10)})


def test_a_graph_without_labels_is_for_links(tmp_path):
    with pytest.warns(UserWarning, match="it can be trained on with --task links only"):
        partition_tools.save_graph(tmp_path / "s.h5", RING, X)


def test_a_remedy_quotes_a_path_with_blanks(tmp_path):
    folder = tmp_path / "my graphs"
    folder.mkdir()
    partition_tools.save_graph(folder / "g.h5", RING, X, np.arange(30) % 3, {"train": np.arange(10)})
    with GraphFile(folder / "g.h5") as file, pytest.raises(GraphError) as caught:
        file.cluster_map("metis", 7)
    assert f"partition '{folder / 'g.h5'}' --ranks 7" in str(caught.value)
    with pytest.raises(FormatError) as caught:
        import_graph(folder / "g.h5", folder / "h.h5")
    assert f"partition '{folder / 'g.h5'}' --ranks" in str(caught.value)
