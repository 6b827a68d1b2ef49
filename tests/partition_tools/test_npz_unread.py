"""Arrays of an archive: splits as masks or lists, and nothing that means something is dropped without a word."""

import numpy as np
import pytest
from partition_helpers import node_data, odd_graph, save_npz, view

from partition_tools.readers.arrays.npz_names import changes_meaning, split_of

N = 60
SRC, DST = odd_graph()
FEATURES, LABELS, MASKS = node_data(N)
IDS = {name: np.flatnonzero(mask) for name, mask in MASKS.items()}
NO_MASKS = {f"{name}_mask": None for name in MASKS}
CODES = sum(mask * code for mask, code in zip((MASKS["train"], MASKS["val"], MASKS["test"]), (1, 2, 3)))


@pytest.fixture
def words(tmp_path):
    """words(option, ..., array=...) -> the words of an import of an archive with these arrays."""

    def make(*options, **changes):
        save_npz(tmp_path / "g.npz", SRC, DST, N, **changes)
        return "import", tmp_path / "g.npz", "-o", tmp_path / "g.h5", *options

    return make


@pytest.mark.parametrize(
    "names",
    [
        ("train_idx", "val_idx", "test_idx"),
        ("idx_train", "idx_val", "idx_test"),
        ("train_index", "valid_index", "test_index"),
        ("train_nodes", "valid_nodes", "test_nodes"),
        ("split_train", "split_valid", "split_test"),
        ("train_mask", "valid_idx", "test-ids"),
    ],
)
def test_splits_as_lists_of_nodes(cli, tmp_path, words, names):
    """In any order of the ids, of shape (k,) or (k, 1)."""
    arrays = {name: IDS[split][::-1] for name, split in zip(names, ("train", "val", "test"))}
    arrays = {name: MASKS["train"] if name == "train_mask" else array for name, array in arrays.items()}
    arrays[names[2]] = arrays[names[2]][:, None]
    code, _, err = cli(*words(**NO_MASKS | arrays))
    assert code == 0 and "not read" not in err, err
    np.testing.assert_array_equal(view(tmp_path / "g.h5").split, CODES)


def test_the_number_of_nodes_is_not_the_length_of_a_list(cli, tmp_path, words):
    assert cli(*words(x=None, y=None, **NO_MASKS, train_idx=np.array([1, 2])))[0] == 0
    seen = view(tmp_path / "g.h5")
    assert seen.meta.num_nodes == max(SRC.max(), DST.max()) + 1 and np.flatnonzero(seen.split).tolist() == [1, 2]


def test_masks_and_lists_must_agree(cli, fails, words):
    assert "train_mask and train_idx are different train splits" in fails(*words(train_idx=IDS["train"][1:]))
    assert "--ignore train_idx" in fails(*words(train_idx=IDS["train"][1:]))
    assert cli(*words(train_idx=IDS["train"][::-1]))[0] == 0
    assert cli(*words("--ignore", "train_idx", "--force", train_idx=IDS["train"][1:]))[0] == 0


def test_wrong_lists(fails, words):
    for array, message in (
        (np.array([3, N]), "names node 60, outside the nodes 0..59"),
        (np.array([-1]), "names node -1"),
        (np.array([0.5]), "vector of node ids"),
        (np.stack([IDS["train"]] * 3), "vector of node ids"),
        (CODES == 1, None),
        ((CODES == 1).astype(int), "which may be a mask or a list"),
        (IDS["val"], "in two splits"),
    ):
        given = words(train_mask=None, train_idx=array)
        if message is not None:
            assert message in fails(*given)


def test_masks_of_several_splits(cli, fails, tmp_path, words):
    several = {f"{name}_mask": np.stack([np.roll(mask, k) for k in range(4)], 1) for name, mask in MASKS.items()}
    error = fails(*words(**several))
    assert "4 columns" in error and "--split-column 0..3" in error
    assert "outside the columns 0..3" in fails(*words("--split-column", 4, **several))
    assert cli(*words("--split-column", 2, **several))[0] == 0
    np.testing.assert_array_equal(view(tmp_path / "g.h5").split, np.roll(CODES, 2))
    assert "has none" in fails(*words("--force", "--split-column", 2))
    one = {name: mask[:, :1].astype(np.uint8) for name, mask in several.items()}
    assert cli(*words("--force", **one))[0] == 0
    np.testing.assert_array_equal(view(tmp_path / "g.h5").split, CODES)


@pytest.mark.parametrize(
    "name, message",
    [
        ("edge_attribute", "features of edges are called edge_attr"),
        ("edge_label", "link prediction"),
        ("edge_label_index", "link prediction"),
        ("edge_time", "no times"),
        ("node_year", "no times"),
        ("batch", "one file holds one graph"),
        ("split", "train_mask"),
        ("target", "rename"),
        ("train_edge_index", "rename"),
        ("adj_t", "rename"),
        ("pos", "rename"),
        ("feat", "mean the same"),
        ("label", "mean the same"),
    ],
)
def test_what_changes_the_meaning_is_refused(cli, fails, words, name, message):
    error = fails(*words(**{name: np.zeros(len(SRC))}))
    assert name in error and message in error and f"--ignore {name}" in error
    code, _, err = cli(*words("--ignore", name, **{name: np.zeros(len(SRC))}))
    assert code == 0 and "not read" not in err


def test_the_rest_is_named(cli, fails, tmp_path, words):
    code, _, err = cli(*words(num_features=np.array(5), title=np.array("odd"), feature_names=np.array(["a"] * 5)))
    assert code == 0 and "warning: " in err and "not read: num_features, title, feature_names" in err
    assert "no array edge_atr" in fails(*words("--force", "--ignore", "edge_atr", edge_attr=np.zeros(3)))
    (tmp_path / "e.csv").write_text("0 1\n")
    assert ".npz archives" in fails("import", tmp_path / "e.csv", "-o", tmp_path / "e.h5", "--ignore", "x")


def test_other_names_of_features_and_labels(cli, tmp_path, words):
    assert cli(*words(x=None, y=None, feat=FEATURES, label=LABELS))[0] == 0
    seen = view(tmp_path / "g.h5")
    np.testing.assert_array_equal(seen.features, FEATURES)
    np.testing.assert_array_equal(seen.labels, LABELS)


def test_names():
    names = ("valid_mask", "mask_dev", "test", "train_edge_mask", "training_time", "val_test_idx")
    assert [split_of(name) for name in names] == [("val", "mask"), ("val", "mask"), ("test", ""), None, None, None]
    assert [
        changes_meaning(name) for name in ("edge_norm", "t", "x_names", "num_edges", "title", "train_edge_mask")
    ] == [True, True, False, False, False, True]
