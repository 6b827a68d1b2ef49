"""Ids from before a partitioning: GraphStorm's id maps and DGL's orig_nids.dgl name the nodes of predictions."""

import shutil
import struct

import dgl_parts
import graphstorm_parts
import numpy as np
import pandas as pd
import pytest
import torch

from hpcgnn.errors import FormatError
from hpcgnn.extras.readers.dgl_binary import read_tensors
from hpcgnn.extras.readers.distdgl import Options
from hpcgnn.graphfile.own_ids import kind_of_ids, read_ids
from hpcgnn.graphfile.storage import GraphFile
from partition_tools.cli.import_graph import import_graph
from partition_tools.workspace.progress import Reporter
from partition_tools.workspace.working import Resources

COUNTS = {"author": dgl_parts.AUTHORS, "paper": dgl_parts.PAPERS}
IGNORED = Options(ignore=("edge_train_mask",))


@pytest.fixture
def folder(tmp_path):
    return dgl_parts.unpacked(tmp_path, dgl_parts.GRAPHBOLT) / "graphstorm"


def numbers_before(folder, kind):
    """The numbers before the partitioning of each part's nodes: the feature that the fixture gave them."""
    name = {"paper": "paper/emb", "author": "author/age"}[kind]
    return [read_tensors(folder / f"part{part}" / "node_feat.dgl")[name][:, 0].astype(int) for part in range(2)]


def write_mapping(folder):
    mapping = {kind: torch.from_numpy(np.concatenate(numbers_before(folder, kind))) for kind in COUNTS}
    torch.save(mapping, folder / "node_mapping.pt")


def write_raw(folder, kind, names, columns=("orig", "new")):
    """A map in two files, their rows in another order than the numbers."""
    table = pd.DataFrame({columns[0]: names, columns[1]: np.arange(len(names))})[::-1]
    home = folder / "raw_id_mappings" / kind
    home.mkdir(parents=True)
    for place in (0, 1):
        table[place::2].to_parquet(home / f"part-0000{place}.parquet")


def ids_and_numbers(path):
    """(types, ids, numbers before the partitioning) of the nodes, in the order in which they were read."""
    with GraphFile(path) as file:
        order = np.argsort(file.read("nodes/original_id"))
        kinds = np.array(file.meta.type_names["nodes"])[file.read("nodes/type")[order]]
        number = file.read("nodes/features")[order, 0].astype(int)
        return kinds, read_ids(file, np.arange(len(order))), number


def test_a_folder_of_graphstorm_itself(tmp_path):
    """Ids, names, edges and splits as they are, without a message. A part has one author, whose feature is one."""
    import_graph(dgl_parts.unpacked(tmp_path, graphstorm_parts.ARCHIVE) / "acm", tmp_path / "g.h5")
    kinds, ids, numbers = ids_and_numbers(tmp_path / "g.h5")
    assert ids.tolist() == [graphstorm_parts.word(kind, number) for kind, number in zip(kinds, numbers)]
    with GraphFile(tmp_path / "g.h5") as file:
        order = file.read("nodes/original_id")
        papers = kinds[order] == "paper"
        np.testing.assert_array_equal(file.read("nodes/labels"), np.where(papers, numbers[order] % 3, -1))
        parts = [read_tensors(tmp_path / "acm" / f"part{part}" / "node_feat.dgl") for part in range(2)]
        masks = [np.concatenate([each[f"paper/{name}_mask"] for each in parts]) for name in ("train", "val", "test")]
        split = np.zeros(len(order), np.int64)
        split[kinds == "paper"] = np.stack(masks, 1) @ [1, 2, 3]
        np.testing.assert_array_equal(file.read("nodes/split"), split[order])
        assert np.bincount(split).tolist() == [1 + graphstorm_parts.AUTHORS, 7, 3, 3]
        kind = file.read("edges/type")
        for place, name in enumerate(file.meta.type_names["edges"]):
            found = numbers[order][dgl_parts.edges_of(file)[:, kind == place]]
            dgl_parts.assert_same_edges(found, graphstorm_parts.ends(name.split("___")[1]))


def test_id_maps_in_other_columns_and_places(folder, tmp_path):
    write_mapping(folder)
    for kind, columns in (("paper", ("orig", "new")), ("author", ("node_str_id", "node_int_id"))):
        write_raw(folder, kind, [f"{kind[0]}{7 * number}" for number in range(COUNTS[kind])], columns)
    import_graph(folder, tmp_path / "g.h5", tables=IGNORED)
    kinds, ids, numbers = ids_and_numbers(tmp_path / "g.h5")
    assert ids.tolist() == [f"{kind[0]}{7 * number}" for kind, number in zip(kinds, numbers)]
    # Ids that types have in common are told apart; a type without a map has its numbers.
    shutil.rmtree(folder / "raw_id_mappings")
    pd.DataFrame({"orig": 5 * np.arange(14), "new": np.arange(14)}).to_parquet(folder / "paper_id_remap.parquet")
    told = Reporter()
    import_graph(folder, tmp_path / "g2.h5", tables=IGNORED, resources=Resources(reporter=told))
    kinds, ids, numbers = ids_and_numbers(tmp_path / "g2.h5")
    expected = [f"{kind}/{number * (5 if kind == 'paper' else 1)}" for kind, number in zip(kinds, numbers)]
    assert ids.tolist() == expected and "TYPE/ID, such as author/" in " ".join(told.warnings)


def test_numbers_before_dgls_distributed_partitioning(folder, tmp_path):
    for part in range(2):
        tensors = {kind: numbers_before(folder, kind)[part] for kind in COUNTS}
        (folder / f"part{part}" / "orig_nids.dgl").write_bytes(saved(tensors))
    import_graph(folder, tmp_path / "g.h5", tables=IGNORED)
    kinds, ids, numbers = ids_and_numbers(tmp_path / "g.h5")
    assert ids.tolist() == [f"{kind}/{number}" for kind, number in zip(kinds, numbers)]


def saved(tensors):
    """The bytes that DGL's save_tensors writes of integers."""
    found = struct.pack("<QQQ", 0xDD5A9FBE3FA2443F, 0, len(tensors))
    for name, values in tensors.items():
        head = struct.pack("<QQiiiBBHq", 0xDD5E40F096B4A13F, 0, 1, 0, 1, 0, 64, 1, len(values))
        found += struct.pack("<Q", len(name)) + name.encode() + head + struct.pack("<Q", 8 * len(values))
        found += values.astype("<i8").tobytes()
    return found


def test_maps_that_do_not_fit(folder, tmp_path):
    out = tmp_path / "g.h5"
    write_raw(folder, "paper", [f"p{number}" for number in range(5)])
    told = Reporter()
    import_graph(folder, out, tables=IGNORED, resources=Resources(reporter=told))
    assert "neither node_mapping.pt nor orig_nids.dgl" in " ".join(told.warnings)
    with GraphFile(out) as file:
        assert kind_of_ids(file) == ""
    write_mapping(folder)
    with pytest.raises(FormatError, match=r"have the numbers 0 to 13, and the map of ids has 0\.\.4"):
        import_graph(folder, tmp_path / "g2.h5", tables=IGNORED)
    (folder / "raw_id_mappings" / "paper" / "part-00001.parquet").unlink()
    with pytest.raises(FormatError, match=r"expected the numbers 0\.\.2, each once; is a part missing\?"):
        import_graph(folder, tmp_path / "g2.h5", tables=IGNORED)
    torch.save({"paper": torch.arange(3)}, folder / "node_mapping.pt")
    with pytest.raises(FormatError, match=r"node_mapping\.pt: expected 9 integers for .* author, got none"):
        import_graph(folder, tmp_path / "g2.h5", tables=IGNORED)
