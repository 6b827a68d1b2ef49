"""A small data set in ogbn-mag's raw layout comes in as one typed graph, and each flaw in it is named."""

import shutil

import numpy as np
import pytest
from partition_helpers import edge_list
from partition_helpers import write_csv as write

# Not in alphabetical order, so that an order other than the file's is noticed.
COUNTS = {"paper": 12, "author": 9, "field": 4}
STARTS = {"paper": 0, "author": 12, "field": 21}
RELATIONS = [("author", "writes", "paper"), ("paper", "has_topic", "field"), ("paper", "cites", "paper")]
WIDTH, CLASSES = 5, 3
SPLITS = {"train": [0, 3, 5], "valid": [1, 4], "test": [2, 11]}


def edges_of(relation):
    head, _, tail = relation
    random = np.random.default_rng(RELATIONS.index(relation))
    ends = np.stack([random.integers(0, COUNTS[head], 20), random.integers(0, COUNTS[tail], 20)], 1)
    ends[0] = COUNTS[head] - 1, COUNTS[tail] - 1
    return ends


def features_of(kind):
    return np.random.default_rng(len(kind)).standard_normal((COUNTS[kind], WIDTH)).round(3)


LABELS = np.arange(COUNTS["paper"]) % CLASSES


@pytest.fixture
def mag(tmp_path):
    """The folder of the data set: only papers have features, labels and a split."""
    path = tmp_path / "ogbn_small"
    raw, split = path / "raw", path / "split" / "time"
    write(raw / "num-node-dict.csv.gz", [COUNTS, COUNTS.values()])
    write(raw / "triplet-type-list.csv.gz", RELATIONS)
    for relation in RELATIONS:
        folder = raw / "relations" / "___".join(relation)
        write(folder / "edge.csv.gz", edges_of(relation))
        write(folder / "num-edge-list.csv.gz", [[20]])
        write(folder / "edge_reltype.csv.gz", [[RELATIONS.index(relation)]] * 20)
    write(raw / "node-feat" / "paper" / "node-feat.csv.gz", features_of("paper"))
    write(raw / "node-feat" / "paper" / "node_year.csv.gz", [[2015]] * COUNTS["paper"])
    write(raw / "node-label" / "paper" / "node-label.csv.gz", LABELS[:, None])
    has = [kind == "paper" for kind in COUNTS]
    for flags in (raw / "nodetype-has-feat", raw / "nodetype-has-label", split / "nodetype-has-split"):
        write(flags.with_suffix(".csv.gz"), [COUNTS, has])
    for name, ids in SPLITS.items():
        write(split / "paper" / f"{name}.csv.gz", [[i] for i in ids])
    return path


def expected_edges():
    found = []
    for kind, (head, _, tail) in enumerate(RELATIONS):
        src, dst = edges_of(RELATIONS[kind]).T + np.array([[STARTS[head]], [STARTS[tail]]])
        found += edge_list(src, dst, None, [kind] * len(src))
    return sorted(found)


def test_types_follow_the_files(imports, mag):
    seen = imports(mag)
    assert "25 nodes" in seen.said and "3 node types, 3 edge types" in seen.said
    assert "no features for author (9 nodes), field (4 nodes): they get rows of zeros" in seen.said
    assert seen.edges == seen.out == expected_edges()
    np.testing.assert_array_equal(seen.node_type, [0] * 12 + [1] * 9 + [2] * 4)
    assert seen.meta.type_names == {"nodes": list(COUNTS), "edges": ["___".join(names) for names in RELATIONS]}
    np.testing.assert_array_equal(seen.features[:12], features_of("paper").astype(np.float32))
    assert not seen.features[12:].any() and seen.features.shape == (25, WIDTH)
    np.testing.assert_array_equal(seen.labels, [*LABELS, *[-1] * 13])
    codes = np.zeros(25)
    for code, ids in enumerate(SPLITS.values(), 1):
        codes[ids] = code
    np.testing.assert_array_equal(seen.split, codes)
    assert seen.meta.num_classes == CLASSES and seen.meta.source == "ogbn_small"


def test_what_may_be_missing(imports, mag):
    """Without the tables of flags the folders show the data of each type. A relation may have no edges, a graph no
    split.
    """
    raw = mag / "raw"
    for flags in list(mag.rglob("nodetype-has-*")):
        flags.unlink()
    empty = raw / "relations" / "___".join(RELATIONS[2])
    write(empty / "edge.csv.gz", [])
    (empty / "num-edge-list.csv.gz").unlink()
    write(raw / "node-feat" / "author" / "node-feat.csv.gz", features_of("author"))
    seen = imports(mag)
    assert seen.edges == [edge for edge in expected_edges() if edge[2] != 2] and seen.meta.num_edge_types == 3
    np.testing.assert_array_equal(seen.features[12:21], features_of("author").astype(np.float32))
    np.testing.assert_array_equal(seen.labels[:12], LABELS)
    assert np.count_nonzero(seen.split) == 7
    shutil.rmtree(mag / "split")
    for kind in ("paper", "author"):
        (raw / "node-feat" / kind / "node-feat.csv.gz").unlink()
    seen = imports(mag)
    assert "no node features" in seen.said and "training split is empty" in seen.said and seen.features is None


WRITES = "relations/author___writes___paper"
FLAWS = {
    "relation without its file": (f"{WRITES}/edge.csv.gz", None, "there is no"),
    "relation cut short": (f"{WRITES}/edge.csv.gz", edges_of(RELATIONS[0])[:-1], "has 19 edges but"),
    "head outside its type": (
        f"{WRITES}/edge.csv.gz",
        [[1, 2], [9, 0]] * 10,
        "edge 1 of author___writes___paper names author 9, outside 0..8",
    ),
    "unknown node type": ("triplet-type-list.csv.gz", [("writer", "writes", "paper")], "names the node type 'writer'"),
    "relation twice": ("triplet-type-list.csv.gz", [RELATIONS[0]] * 2, "names a relation twice"),
    "no relations": ("triplet-type-list.csv.gz", [], "head, relation, tail"),
    "no counts": ("num-node-dict.csv.gz", None, "no table"),
    "two graphs": ("num-node-dict.csv.gz", [COUNTS, COUNTS.values(), COUNTS.values()], "one row of"),
    "rows missing": ("node-feat/paper/node-feat.csv.gz", np.ones((11, WIDTH)), "has 11 rows, expected 12"),
    "two labelled types": ("node-label/field/node-label.csv.gz", [[0]] * 4, "one type of nodes with labels"),
    "split without its file": ("../split/time/paper/test.csv.gz", None, "has no test.csv.gz"),
    "two split types": ("../split/other/paper/train.csv.gz", [[1]], "several split types"),
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_flaws(fails, mag, tmp_path, flaw):
    name, rows, message = FLAWS[flaw]
    file = mag / "raw" / name
    file.unlink() if rows is None else write(file, rows)
    error = fails("import", mag, "-o", tmp_path / "g.h5")
    assert message in error and str(mag) in error
