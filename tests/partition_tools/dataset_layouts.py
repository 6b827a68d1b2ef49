"""Small graphs in the very files that the downloads of published data sets leave."""

import gzip
import zipfile

import numpy as np
import scipy.sparse
from partition_helpers import node_data, odd_graph

N, CLASSES = 60, 4


def ids_of(masks):
    return {name: np.flatnonzero(mask) for name, mask in masks.items()}


def write_csv(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        file.writelines(",".join(map(str, row)) + "\n" for row in rows)


def write_split(folder, masks):
    for file, name in (("train", "train"), ("valid", "val"), ("test", "test")):
        write_csv(folder / f"{file}.csv.gz", np.flatnonzero(masks[name])[:, None])


def ogb_text(folder, split, edges=200):
    """ogbn-arxiv and ogbn-products: raw/*.csv.gz and split/NAME/*.csv.gz; returns (src, dst)."""
    src, dst = odd_graph(edges=edges)
    features, labels, masks = node_data(N)
    for name, rows in (
        ("edge", np.stack([src, dst], 1)),
        ("num-node-list", [[N]]),
        ("num-edge-list", [[len(src)]]),
        ("node-feat", features),
        ("node-label", labels[:, None]),
        ("node_year", np.full((N, 1), 2015)),
    ):
        write_csv(folder / "raw" / f"{name}.csv.gz", rows)
    write_split(folder / "split" / split, masks)
    return src, dst


def ogb_binary(folder, save=np.savez_compressed):
    """ogbn-papers100M: raw/data.npz, raw/node-label.npz with NaN for no label, and split/time/*.csv.gz."""
    src, dst = odd_graph()
    features, labels, masks = node_data(N)
    (folder / "raw").mkdir(parents=True)
    save(
        folder / "raw" / "data.npz",
        edge_index=np.stack([src, dst]),
        num_nodes_list=np.array([N]),
        num_edges_list=np.array([len(src)]),
        node_feat=features,
        node_year=np.full((N, 1), 2015),
    )
    known = masks["train"] | masks["val"] | masks["test"]
    save(folder / "raw" / "node-label.npz", node_label=np.where(known, labels, np.nan).astype(np.float32)[:, None])
    write_split(folder / "split" / "time", masks)
    return src, dst


def reddit(folder, edges=200):
    """reddit_data.npz and reddit_graph.npz, a sparse matrix in coordinates with both directions of each edge."""
    folder.mkdir(parents=True, exist_ok=True)
    src, dst = odd_graph(edges=edges)
    there = np.unique(np.stack([np.concatenate([src, dst]), np.concatenate([dst, src])]), axis=1)
    features, labels, masks = node_data(N)
    types = sum(masks[name] * code for name, code in (("train", 1), ("val", 2), ("test", 3))).astype(np.int32)
    matrix = scipy.sparse.coo_matrix((np.ones(there.shape[1]), (there[0].astype(np.int32), there[1])), (N, N))
    scipy.sparse.save_npz(folder / "reddit_graph.npz", matrix)
    np.savez(
        folder / "reddit_data.npz",
        feature=features,
        label=labels.astype(np.int32),
        node_types=types,
        node_ids=np.arange(N),
    )
    return there


def igb(folder, size, header):
    """processed/ of one size: .npy files, or float32 numbers without a header; edges are (E, 2)."""
    paper, cites = folder / size / "processed" / "paper", folder / size / "processed" / "paper__cites__paper"
    paper.mkdir(parents=True)
    cites.mkdir(parents=True)
    src, dst = odd_graph()
    random = np.random.default_rng(0)
    features, labels = random.random((N, 1024)).astype(np.float32), random.integers(0, 19, N).astype(np.float32)
    for name, array in (("node_feat", features), ("node_label_19", labels), ("node_label_2K", 100 * labels)):
        if header:
            np.save(paper / f"{name}.npy", array)
        else:
            array.tofile(paper / f"{name}.npy")
    np.save(cites / "edge_index.npy", np.stack([src, dst], 1))
    return src, dst, features, labels


def snap(path, src, dst, ids, comments=True):
    """An edge list with the collection's comments, tabs between ids that have gaps."""
    head = "# Undirected graph: ../../data/output/x.txt\n# Nodes: 60 Edges: 1\n# FromNodeId\tToNodeId\n"
    lines = "".join(f"{ids[s]}\t{ids[d]}\n" for s, d in zip(src, dst))
    data = ((head if comments else "") + lines).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def stored_uncompressed(path):
    """Whether the members of an archive are stored as they are."""
    with zipfile.ZipFile(path) as archive:
        return all(member.compress_type == zipfile.ZIP_STORED for member in archive.infolist())
