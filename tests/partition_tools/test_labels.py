"""Labels that are no classes are refused, words are classes with names, and no label is lost to a NaN."""

import json

import numpy as np
import pytest
from partition_helpers import node_data, odd_graph, view

from hpcgnn.graphfile.storage import GraphFile

N = 60
SRC, DST = odd_graph()
_, LABELS, MASKS = node_data(N)
WORDS = np.array(["politician", "company", "tv show", "government"])[LABELS]


@pytest.mark.parametrize("labels, members", [(LABELS * 1_000_000, 4), (LABELS + 1990, 4), (np.arange(N) * 3, N)])
def test_numbers_that_are_no_classes(cli, fails, tmp_path, archive, labels, members):
    error = fails(*archive(y=labels))
    assert f"{labels.max() + 1:,} classes, of which {members} have a member" in error
    assert f"labels.classes={labels.max() + 1}" in error and "regression" in error
    assert cli(*archive("--set", f"labels.classes={labels.max() + 1}", y=labels))[0] == 0
    assert cli(*archive(y=labels, num_classes=np.array(labels.max() + 1)))[0] == 0
    seen = view(tmp_path / "g.h5")
    np.testing.assert_array_equal(seen.labels, labels)
    assert seen.meta.num_classes == labels.max() + 1


def test_a_nan_beside_labels(cli, fails, tmp_path, archive):
    labels = np.random.default_rng(0).integers(0, 2, (N, 4)).astype(np.float32)
    free = np.flatnonzero(~(MASKS["train"] | MASKS["val"] | MASKS["test"]))
    labels[free[1], 2] = np.nan
    assert f"node {free[1]} has some of its labels and NaN for others (1 such nodes)" in fails(*archive(y=labels))
    labels[free[1]] = np.nan
    assert cli(*archive(y=labels))[0] == 0
    np.testing.assert_array_equal(view(tmp_path / "g.h5").labels, np.nan_to_num(labels))


def check_words(cli, tmp_path, labels):
    found = sorted(set(WORDS))
    seen = view(tmp_path / "g.h5")
    assert seen.meta.type_names == {"classes": found} and seen.meta.num_classes == 4
    np.testing.assert_array_equal(seen.labels, [-1 if word == "" else found.index(word) for word in labels])
    assert "government" in cli("inspect", tmp_path / "g.h5")[1]
    assert json.loads(cli("inspect", tmp_path / "g.h5", "--json")[1])["class_names"] == found
    assert cli("partition", "add", tmp_path / "g.h5", "--ranks", 2, "--clusters", 4)[0] == 0
    with GraphFile(tmp_path / "g.h5") as file:
        assert file.meta.type_names == {"classes": found}
    assert cli("verify", tmp_path / "g.h5")[0] == 0


def test_words_in_an_archive(cli, fails, tmp_path, archive):
    assert cli(*archive(y=WORDS))[0] == 0
    check_words(cli, tmp_path, WORDS)
    assert "3 classes were stated" in fails(*archive("--set", "labels.classes=3", y=WORDS))
    assert cli(*archive(class_names=np.array(sorted(set(WORDS)))))[0] == 0
    check_words(cli, tmp_path, np.array(sorted(set(WORDS)))[LABELS])
    multi = np.random.default_rng(0).integers(0, 2, (N, 4))
    assert "3 classes were stated or named" in fails(*archive(y=multi, class_names=np.array(list("abc"))))
    for arrays in ({"y": multi}, {"y": None} | {f"{name}_mask": None for name in MASKS}):
        assert cli(*archive(class_names=np.array(list("abcd")), **arrays))[0] == 0
        assert cli("verify", tmp_path / "g.h5")[0] == 0
    assert "distinct" in fails(*archive(class_names=np.array(["a", "a", "b", "c"])))
    assert "--set arrays.ignore=class_names" in fails(*archive(y=WORDS, class_names=np.array(list("abcd"))))


@pytest.mark.parametrize("task", ["multilabel", "regression"])
def test_several_columns_keep_their_names(cli, imports, tmp_path, task):
    """Of 0/1 labels, which are seen to be such, and of targets."""
    np.savetxt(tmp_path / "e.csv", np.stack([SRC, DST], 1), "%d", ",")
    rows = [f"{node},{node % 2},{node % 3 // 2}" for node in range(N)]
    (tmp_path / "y.csv").write_text("\n".join(["id,sports,arts", *rows]) + "\n")
    options = ("--set", "labels.task=regression") if task == "regression" else ()
    meta = imports(tmp_path / "e.csv", "--labels", tmp_path / "y.csv", *options).meta
    assert (meta.task, meta.num_classes, meta.type_names.get("classes")) == (task, 2, ["sports", "arts"])
    assert cli("verify", tmp_path / "g.h5")[0] == 0
    assert "sports" in cli("inspect", tmp_path / "g.h5")[1]
