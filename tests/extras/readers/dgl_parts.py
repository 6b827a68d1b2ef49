"""Makes dgl-parts.tgz and dgl-graphbolt.tgz, folders that DGL 2.1.0 itself partitioned.

    python tests/partition_tools/dgl_parts.py    # where DGL is; again after IndexError: a part had no edge of a type

The first feature of a node is its number before the partitioning, and the weight of edge e is e + 1. `ends` has the
ends of edge e.
"""

import json
import tarfile
import tempfile
from pathlib import Path

import numpy as np

ARCHIVE, GRAPHBOLT = (Path(__file__).with_name(f"dgl-{name}.tgz") for name in ("parts", "graphbolt"))
NODES, EDGES, PAPERS, AUTHORS = 24, 60, 14, 9

#: As gconstruct leaves it: https://graphstorm.readthedocs.io, "Configuration JSON Explanations".
GRAPHSTORM = {
    "version": "gconstruct-v0.1",
    "nodes": [
        {
            "node_type": "paper",
            "features": [{"feature_col": "emb"}, {"feature_col": ["a", "b"], "feature_name": "size"}],
            "labels": [
                {
                    "label_col": "venue",
                    "task_type": "classification",
                    "mask_field_names": ["train_m", "val_m", "test_m"],
                }
            ],
        },
        {"node_type": "author", "features": [{"feature_col": ["age"]}]},
    ],
    "edges": [{"relation": ["paper", "cites", "paper"], "labels": [{"task_type": "link_prediction"}]}],
}


def ends(edge, sources, destinations):
    """The ends of edges before the partitioning."""
    return (5 * edge + 1) % sources, (3 * edge * edge + edge) % destinations


def make(folder):
    """Write one/ (one type) and several/ (papers and authors, edges by destination) below a folder, and of both
    graphbolt-one/ and graphbolt-several/, which have no graph.dgl; the first has neither ids nor data of edges.
    graphstorm/ has the names and files that GraphStorm's documentation shows.
    """
    import dgl
    import torch
    from dgl.distributed import dgl_partition_to_graphbolt, partition_graph

    def pairs(count, *sizes):
        return tuple(map(torch.from_numpy, ends(np.arange(count), *sizes)))

    graph = dgl.graph(pairs(EDGES, NODES, NODES), num_nodes=NODES)
    number = torch.arange(NODES)
    graph.ndata["feat"] = torch.stack([number, number * number], 1).float()
    graph.ndata["label"] = number % 3
    for place, name in enumerate(("train", "val", "test")):
        graph.ndata[f"{name}_mask"] = number % 4 == place
    graph.edata["w"] = torch.arange(1.0, EDGES + 1)
    partition_graph(graph, "one", 3, str(folder / "one"), part_method="random")
    del graph.edata["w"]
    partition_graph(graph, "one", 3, str(folder / "graphbolt-one"), part_method="random")
    relations = {
        ("paper", "cites", "paper"): pairs(40, PAPERS, PAPERS),
        ("author", "writes", "paper"): pairs(20, AUTHORS, PAPERS),
    }
    mixed = dgl.heterograph(relations, num_nodes_dict={"paper": PAPERS, "author": AUTHORS})
    for kind, count in (("paper", PAPERS), ("author", AUTHORS)):
        mixed.nodes[kind].data["feat"] = torch.arange(float(count))[:, None]
    mixed.nodes["paper"].data["label"] = torch.arange(PAPERS) % 2
    for relation in relations:
        mixed.edges[relation].data["weight"] = torch.arange(1.0, mixed.num_edges(relation) + 1)
    for name in ("several", "graphbolt-several"):
        partition_graph(mixed, "several", 2, str(folder / name), part_method="random", graph_formats=["csc"])
    papers, authors = mixed.nodes["paper"].data, mixed.nodes["author"].data
    papers["emb"], papers["size"] = papers.pop("feat"), torch.ones(PAPERS, 2)
    papers["venue"], authors["age"] = papers.pop("label"), authors.pop("feat")
    for place, name in enumerate(("train_m", "val_m", "test_m")):
        papers[name] = (torch.arange(PAPERS) % 3 == place).to(torch.int8)
    mixed.edges["cites"].data["train_mask"] = torch.ones(40, dtype=torch.int8)
    partition_graph(mixed, "acm", 2, str(folder / "graphstorm"), part_method="random")
    (folder / "graphstorm" / "data_transform_new.json").write_text(json.dumps(GRAPHSTORM))
    (folder / "graphstorm" / "node_label_stats.json").write_text('{"paper": {}}')
    for name, ids in (("one", False), ("several", True)):
        book = folder / f"graphbolt-{name}" / f"{name}.json"
        dgl_partition_to_graphbolt(str(book), store_eids=ids)
        told = json.loads(book.read_text())
        for part in range(told["num_parts"]):  # later versions of DGL write the one graph or the other
            (book.parent / told[f"part-{part}"].pop("part_graph")).unlink()
        book.write_text(json.dumps(told))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder))
        for made, first in ((ARCHIVE, ""), (GRAPHBOLT, "graphbolt-")):
            with tarfile.open(made, "w:gz") as archive:
                for each in [f"{first}{name}" for name in ("one", "several")] + ["graphstorm"] * bool(first):
                    archive.add(Path(folder) / each, each)
