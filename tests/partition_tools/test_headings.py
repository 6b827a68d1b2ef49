"""The heading of an edge list says what its columns are; where it does not, the import asks."""

import gzip

import numpy as np
import pytest
from partition_helpers import edge_list, odd_graph, view

from partition_tools.readers.tables.headings import columns_of, is_id, role

N = 60
SRC, DST = odd_graph()
WEIGHT = np.round(np.random.default_rng(5).random(len(SRC)), 3)
KIND = np.arange(len(SRC)) % 3
TIME = np.arange(len(SRC)) + 1_600_000_000


def write(path, head, *columns, separator=","):
    lines = [head] * bool(head) + [separator.join(map(str, row)) for row in zip(*columns)]
    with (gzip.open if path.suffix == ".gz" else open)(path, "wt") as file:
        file.write("\n".join(lines) + "\n")
    return path


@pytest.fixture
def imported(cli, tmp_path):
    """imported(head, columns, option, ...) -> (view of the graph, what was said)."""

    def run(head, columns, *options, separator=",", name="e.csv"):
        path = write(tmp_path / name, head, *columns, separator=separator)
        code, _, err = cli("import", path, "-o", tmp_path / "g.h5", "--force", *options)
        assert code == 0, err
        return view(tmp_path / "g.h5"), err

    return run


def test_swapped_names_and_columns_are_one_graph(imported):
    one, _ = imported("src,dst", (SRC, DST))
    two, err = imported("dst,src", (DST, SRC))
    assert one.meta.uuid == two.meta.uuid and two.edges == edge_list(SRC, DST)
    assert "dst -> dst, src -> src" in err
    three, _ = imported("dst,src", (SRC, DST))
    assert three.edges == edge_list(DST, SRC) and three.meta.uuid != one.meta.uuid


def test_a_time_is_no_weight(imported):
    seen, err = imported("src,dst,time", (SRC, DST, TIME))
    assert not seen.meta.weighted and seen.edges == edge_list(SRC, DST)
    assert seen.meta.uuid == imported("src,dst", (SRC, DST))[0].meta.uuid and "time ignored" in err
    seen, err = imported("weight,time,to,from,kind", (WEIGHT, TIME, DST, SRC, KIND))
    assert seen.edges == edge_list(SRC, DST, WEIGHT, KIND)
    assert "weight -> weight, time ignored, to -> dst, from -> src, kind -> type" in err


@pytest.mark.parametrize(
    "head, swapped",
    [
        ("Source,Target", False),
        ("target,source", True),
        ("u,v", False),
        ("v,u", True),
        ("FromNodeId,ToNodeId", False),
        ("to_node,from_node", True),
        ("dst_id,src_id", True),
        (":END_ID,:START_ID", True),
        ("node1,node2", False),
        ("id_2,id_1", True),
        ("nodeB,nodeA", True),
        ("t,s", True),
        ('"dst","src"', True),
        ("node_v,node_u", True),
    ],
)
def test_names_of_ends(imported, head, swapped):
    columns = (DST, SRC) if swapped else (SRC, DST)
    assert imported(head, columns)[0].edges == edge_list(SRC, DST)


@pytest.mark.parametrize(
    "comment, swapped",
    [
        ("# FromNodeId\tToNodeId", False),
        ("# ToNodeId FromNodeId", True),
        ("% dst src", True),
        ("# to whom", False),
        ("# a b", False),
        ("# src dst time", False),
    ],
)
def test_a_heading_in_a_comment(imported, comment, swapped):
    """As SNAP has it; a comment whose words are not all known names, or not as many as columns, is a comment."""
    columns = (DST, SRC) if swapped else (SRC, DST)
    seen, _ = imported(f"# Directed graph: x.txt\n{comment}", columns, separator="\t", name="e.txt")
    assert seen.edges == edge_list(SRC, DST)


def test_a_comment_names_the_third_column(imported, fails, tmp_path):
    seen, err = imported("# src dst time", (SRC, DST, TIME), separator=" ", name="e.txt.gz")
    assert not seen.meta.weighted and "time ignored" in err
    path = write(tmp_path / "r.txt", "# src dst rating", SRC, DST, TIME, separator=" ")
    assert "--edge-columns src,dst,weight" in fails("import", path, "-o", tmp_path / "r.h5")


def test_columns_without_a_known_name_are_asked_for(fails, imported, tmp_path):
    target = ("-o", tmp_path / "n.h5")
    cases = {
        "": "no heading says what the third is",
        "src,dst,rating": "what rating means is not known",
        "src,dst,": "--edge-columns src,dst,_",
        "person,friend,weight": "no column of the heading is known as src or dst",
        "src,friend,weight": "known as dst",
        "src,source,dst": "two columns are known as src",
        "src,dst,src": "src",
        "src,dst,2019": "2019",
    }
    for head, message in cases.items():
        error = fails("import", write(tmp_path / "n.csv", head, SRC, DST, TIME), *target)
        assert message in error and "--edge-columns" in error
    assert "rows have more columns" in fails("import", write(tmp_path / "n.csv", "src,dst", SRC, DST, TIME), *target)
    error = fails(
        "import", write(tmp_path / "n.csv", "Source,Target,Type", SRC, DST, ["Undirected"] * len(SRC)), *target
    )
    assert "the edge types are Undirected" in error and "`_` in --edge-columns ignores it" in error
    assert "one column" in fails("import", write(tmp_path / "n.csv", "", ["0;1", "1;2"]), *target)
    for head in ("a,b", "node,neighbour", "head,tail"):
        assert "--edge-columns src,dst " in fails("import", write(tmp_path / "n.csv", head, SRC, DST), *target)
    seen, _ = imported("src,dst,rating", (SRC, DST, WEIGHT), "--edge-columns", "dst,src,weight")
    assert seen.edges == edge_list(DST, SRC, WEIGHT)
    seen, _ = imported("", (SRC, DST, WEIGHT), "--edge-columns", "src,dst,weight")
    assert seen.edges == edge_list(SRC, DST, WEIGHT)


def test_a_first_edge_of_words_is_not_lost(imported, fails, tmp_path):
    """Two words that are no names of columns may be an edge; once they were dropped."""
    words = (("ann", "bob", "eve"), ("bob", "eve", "ann"))
    path = write(tmp_path / "w.csv", "", *words)
    assert "--no-heading" in fails("import", path, "-o", tmp_path / "w.h5", "--relabel")
    assert "--no-heading" in fails("import", path, "-o", tmp_path / "w.h5", "--relabel", "--edge-columns", "src,dst")
    seen, _ = imported("", words, "--relabel", "--no-heading")
    assert seen.edges == edge_list([0, 1, 2], [1, 2, 0])
    seen, _ = imported("person,friend", words, "--relabel", "--heading", "--edge-columns", "dst,src")
    assert seen.edges == edge_list([1, 2, 0], [0, 1, 2])


def test_a_heading_without_edges(cli, tmp_path):
    write(tmp_path / "e.csv", "src,dst,weight")
    np.save(tmp_path / "y.npy", np.arange(3))
    assert cli("import", tmp_path / "e.csv", "-o", tmp_path / "g.h5", "--labels", tmp_path / "y.npy")[0] == 0
    assert view(tmp_path / "g.h5").edges == []


def test_roles():
    assert [
        role(name) for name in ("edge_weight", "Timestamp", "relation_type", "REL", "rating", "id", "edge-time", "")
    ] == ["weight", "_", "type", "type", None, None, "_", None]
    assert columns_of(["eid", "v", "u"], "x") == ("_", "dst", "src")
    assert all(map(is_id, ("id", "Node_ID", "paper_id", "userId"))) and not is_id("paper_id", 0)
    assert not any(map(is_id, ("valid", "grid", "x1", "class_id", "labelId")))
