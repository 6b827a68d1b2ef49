"""Small graphs in the very files that the downloads of published data sets leave."""

import gzip
import zipfile

import numpy as np
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


def stored_uncompressed(path):
    """Whether the members of an archive are stored as they are."""
    with zipfile.ZipFile(path) as archive:
        return all(member.compress_type == zipfile.ZIP_STORED for member in archive.infolist())
