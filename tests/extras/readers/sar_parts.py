"""Makes dgl-sar.tgz: folders that DGL 2.1.0 partitioned by the steps of SAR's examples (github.com/IntelLabs/SAR).

    python tests/partition_tools/sar_parts.py    # where DGL is

arxiv/ has the steps of examples/partition_arxiv_products.py and mag/ those of examples/partition_mag.py, on graphs of
OGB's shapes: the latter has `year`, and `reltype` of edges, which OGB's files bring. cora/ has those of
examples/partition_graph.py for a data set of DGL. The first feature of a node is its number before the partitioning.
"""

import tarfile
import tempfile
from pathlib import Path

import numpy as np

ARCHIVE = Path(__file__).with_name("dgl-sar.tgz")
NODES, EDGES = 30, 70
MAG = {"author": 9, "field_of_study": 6, "institution": 4, "paper": 12}
RELATIONS = {
    ("author", "affiliated_with", "institution"): 10,
    ("author", "writes", "paper"): 18,
    ("paper", "cites", "paper"): 20,
    ("paper", "has_topic", "field_of_study"): 14,
}


def ends(relation, count, sources, destinations):
    """The ends of a relation's edges before the partitioning. relation: its number."""
    edge = np.arange(count)
    return (7 * edge + relation) % sources, (3 * edge * edge + edge // sources + relation) % destinations


def bidirected():
    """The edges of the graphs of one type, without repetitions, both directions and a loop at each node: (2, E)."""
    src, dst = ends(1, EDGES, NODES, NODES)
    loops = np.arange(NODES)
    return np.unique(np.stack([np.r_[src, dst, loops], np.r_[dst, src, loops]]), axis=1)


def make(folder):
    """Write the three folders below a folder."""
    import dgl
    import torch

    def features(count):
        return torch.stack([torch.arange(count), torch.arange(count) ** 2], 1).float()

    def masks(count):
        return [torch.arange(count) % 4 == place for place in range(3)]

    names = ["train_mask", "val_mask", "test_mask", "labels", "features"]
    src, dst = map(torch.from_numpy, ends(1, EDGES, NODES, NODES))
    for name, last in (("ogbn-arxiv", names[3:]), ("cora", ["label", "feat"])):
        graph = dgl.remove_self_loop(dgl.graph((src, dst), num_nodes=NODES))
        graph = dgl.add_self_loop(dgl.to_bidirected(graph, copy_ndata=True))
        for key, value in zip(names[:3] + last, [*masks(NODES), torch.arange(NODES) % 3, features(NODES)], strict=True):
            graph.ndata[key] = value
        balance = graph.ndata["train_mask"] if name == "ogbn-arxiv" else None
        home = str(folder / name.removeprefix("ogbn-"))
        dgl.distributed.partition_graph(graph, name, 2, home, num_hops=1, balance_ntypes=balance, balance_edges=True)
    pairs = {
        relation: tuple(map(torch.from_numpy, ends(number, count, MAG[relation[0]], MAG[relation[2]])))
        for number, (relation, count) in enumerate(RELATIONS.items())
    }
    graph = dgl.heterograph(pairs, num_nodes_dict=MAG)
    papers = MAG["paper"]
    graph.nodes["paper"].data["feat"] = features(papers)
    graph.nodes["paper"].data["year"] = 2010 + torch.arange(papers)[:, None] % 9
    for number, (relation, count) in enumerate(RELATIONS.items()):
        graph.edges[relation].data["reltype"] = torch.full((count, 1), number)
    for key, value in zip(names, [*masks(papers), torch.arange(papers) % 3, features(papers)], strict=True):
        graph.ndata[key] = {"paper": value}
    dgl.distributed.partition_graph(graph, "ogbn-mag", 2, str(folder / "mag"), num_hops=1, balance_edges=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder))
        with tarfile.open(ARCHIVE, "w:gz") as archive:
            for each in ("arxiv", "cora", "mag"):
                archive.add(Path(folder) / each, each)
