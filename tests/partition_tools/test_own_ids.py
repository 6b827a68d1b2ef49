"""The ids of the user's tables are kept in the graph file, through partitioning, and found again."""

import h5py
import numpy as np
import pytest

from hpcgnn.errors import FormatError
from hpcgnn.graphfile.own_ids import ids_of, kind_of_ids, nodes_of, read_ids
from hpcgnn.graphfile.storage import GraphFile
from partition_tools.cli.import_graph import import_graph
from partition_tools.cli.partition_graph import partition_graph
from partition_tools.cli.verify_graph import verify_graph
from partition_tools.readers.tables.tables import TableOptions

KINDS = {
    "words": ["anna", "bobb", "d" * 300, "emil", "zoë", "çelik", "東京"],
    "numbers": [3, 10, 11, 500, 501, 502, 9_000_000_000],
    "large numbers": [3, 10, 2**63 - 1, 2**63, 2**63 + 1, 2**63 + 2, 2**64 - 1],
}


def imported(folder, names, relabel=True):
    """The path of a partitioned graph, a ring of these nodes."""
    folder.joinpath("e.csv").write_text("src,dst\n" + "".join(f"{a},{b}\n" for a, b in zip(names, names[1:])))
    folder.joinpath("f.csv").write_text("id,x\n" + "".join(f"{name},{place}\n" for place, name in enumerate(names)))
    tables = TableOptions(features=folder / "f.csv", relabel=relabel)
    import_graph(folder / "e.csv", folder / "g.h5", tables=tables)
    partition_graph(folder / "g.h5", [2], num_clusters=3)
    return folder / "g.h5"


@pytest.mark.parametrize("kind", KINDS)
def test_ids_survive_partitioning_and_are_found(tmp_path, kind):
    names = KINDS[kind]
    path = imported(tmp_path, names)
    assert all(check.ok is not False for check in verify_graph(path))
    with GraphFile(path) as file:
        assert kind_of_ids(file) == kind.split()[-1]
        assert read_ids(file, np.arange(len(names))).tolist() == names
        assert read_ids(file, np.array([0, 2, 3, 6])).tolist() == [names[0], names[2], names[3], names[6]]
        assert len(read_ids(file, np.arange(0))) == 0
        # What the file says of node i is what the table says of its id.
        order = file.read("nodes/original_id")
        assert (file.read("nodes/features")[:, 0] == order).all()
        assert nodes_of(file, [str(names[k]) for k in (5, 1, 5)], "list").tolist() == [5, 1, 5]
        assert ids_of(file, np.array([5, 1, 5])) == [names[5], names[1], names[5]]
        with pytest.raises(FormatError, match="list: no node has the id 77 .1 such ids"):
            nodes_of(file, ["77", str(names[0])], "list")


def test_nodes_that_go_by_their_numbers_have_no_ids(tmp_path):
    for relabel in (True, False):
        path = imported(tmp_path, list(range(6)), relabel)
        with GraphFile(path) as file:
            assert kind_of_ids(file) == ""
            assert nodes_of(file, ["5", "0"], "list").tolist() == [5, 0]
            for wrong, words in (
                ("6", r"no node has the id 6 .*expected 0\.\.5"),
                ("anna", "expected numbers of nodes"),
            ):
                with pytest.raises(FormatError, match=words):
                    nodes_of(file, ["0", wrong], "list")
        path.unlink()


FAULTS = {"twice": ("text", slice(4, 8), [*b"anna"]), "offsets": ("offsets", slice(2, 4), [30, 1])}
FAULTS["no text"] = "text", slice(2), [255, 254]


@pytest.mark.parametrize("fault", FAULTS)
def test_damage_is_found(tmp_path, fault):
    path = imported(tmp_path, KINDS["words"])
    with h5py.File(path, "r+", libver="latest") as file:
        name, place, wrong = FAULTS[fault]
        file[f"original/id_{name}"][place] = wrong
    bad = [check for check in verify_graph(path) if check.ok is False]
    assert [check.name for check in bad] == ["ids are distinct"], bad
