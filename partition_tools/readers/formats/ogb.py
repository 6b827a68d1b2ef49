"""The raw files of OGB's data sets of node and of link property prediction, as unpacked from its archives (Hu et al.,
NeurIPS 2020).

Three layouts, which the files of raw/ distinguish:
* text: edge.csv.gz (E lines `source,destination`), num-node-list.csv.gz (one number), node-feat.csv.gz and
  node-label.csv.gz (n lines), edge-feat.csv.gz (E lines), no headings; ogbn-arxiv, -products, -proteins
* binary: data.npz (edge_index (2, E), num_nodes_list, node_feat) and node-label.npz (node_label); ogbn-papers100M
* heterogeneous: triplet-type-list.csv.gz and more, see `ogb_hetero`; ogbn-mag

The split is in split/<type>/{train,valid,test}.csv.gz, one node id per line. In sets for links it is in
split/<type>/{valid,test}.pt, with held-out edges and their negatives (ogbl-collab, -ppa, -ddi, -citation2); raw/ has
the edges of training. A label that is NaN (papers100M: most of them) is none. Several label columns are a multi-label
task. A warning names other files (node_year, node_species), which are not read.
"""

from pathlib import Path

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.graph.counts import stated
from partition_tools.graph.raw import RawGraph
from partition_tools.readers.arrays.archives import open_arrays
from partition_tools.readers.formats import ogb_hetero
from partition_tools.readers.formats.ogb_files import (
    check_edges,
    edge_columns,
    rows,
    say_unread,
    split_folder,
    split_ids,
    split_links,
    table,
)
from partition_tools.readers.tables.tables import NoOptions
from partition_tools.workspace.scratch import Scratch

NAME = "ogb"
OPTIONS = NoOptions
STORED_ONCE = ("products", "proteins", "collab", "ppa", "ddi")


# (sources, destinations, number of nodes, features or None, labels or None)
Parts = tuple[np.ndarray, np.ndarray, int, np.ndarray | None, np.ndarray | None]


def matches(path: Path) -> bool:
    """Whether a path looks like this format."""
    return path.is_dir() and (path / "raw").is_dir()


def read(path: Path, options: NoOptions, scratch: Scratch) -> RawGraph:
    """The `RawGraph` of an unpacked data set: the folder that holds raw/ and split/."""
    if any(name in path.name for name in STORED_ONCE):
        scratch.reporter.warn(
            f"{path.name} may be stored with one direction of each edge; if so, import it with --undirected"
        )
    raw = path / "raw"
    if (raw / "triplet-type-list.csv.gz").is_file():
        return ogb_hetero.read(path, scratch)
    edge_features: np.ndarray | None = None
    if (raw / "data.npz").is_file():
        src, dst, num_nodes, features, labels = _binary(raw, scratch)
    elif (raw / "edge.csv.gz").is_file():
        src, dst, num_nodes, features, labels = _text(raw, scratch)
        edge_features = rows(raw / "edge-feat.csv.gz", scratch)
    else:
        raise FormatError(
            f"{path} is not an OGB folder: expected raw/edge.csv.gz, raw/data.npz or raw/triplet-type-list.csv.gz in it"
        )
    folder = split_folder(path)
    links = {} if folder is None else split_links(folder)
    ids = {} if folder is None or links else split_ids(folder)
    return RawGraph(
        src=src,
        dst=dst,
        num_nodes=num_nodes,
        features=features,
        labels=labels,
        split=ids,
        source=path.name,
        edge_features=edge_features,
        links=links,
    )


def _text(raw: Path, scratch: Scratch) -> Parts:
    counts = table(raw / "num-node-list.csv.gz")
    if counts is None:
        raise FormatError(f"{raw} has no num-node-list.csv.gz")
    say_unread(
        raw,
        (file.name.removesuffix(".csv.gz") for file in raw.iterdir()),
        ("edge", "num-node-list", "num-edge-list", "node-feat", "node-label", "edge-feat"),
        scratch.reporter,
    )
    scratch.reporter.stage(f"reading {raw / 'edge.csv.gz'}")
    src, dst = edge_columns(raw / "edge.csv.gz", scratch)
    scratch.reporter.stage("reading features and labels")
    features, labels = (rows(raw / f"node-{name}.csv.gz", scratch) for name in ("feat", "label"))
    return src, dst, _one(counts, raw), features, labels


def _binary(raw: Path, scratch: Scratch) -> Parts:
    path = raw / "data.npz"
    with open_arrays(path, scratch) as archive:
        names = "edge_index", "num_nodes_list", "num_edges_list", "node_feat"
        say_unread(path, archive, names, scratch.reporter)
        edge_index, counts, stored, features = (archive[name]() if name in archive else None for name in names)
    if edge_index is None or edge_index.ndim != 2 or edge_index.shape[0] != 2 or counts is None:
        raise FormatError(f"{path} must hold edge_index of shape (2, E) and num_nodes_list")
    check_edges(path, edge_index.shape[1], stored)
    labels = None
    if (raw / "node-label.npz").is_file():
        with open_arrays(raw / "node-label.npz", scratch) as archive:
            labels = archive["node_label"]() if "node_label" in archive else None
    return edge_index[0], edge_index[1], _one(counts, raw), features, labels


def _one(counts: np.ndarray, raw: Path) -> int:
    if counts.size != 1:
        raise FormatError(f"{raw} holds {counts.size} graphs; expected one (node or link property prediction)")
    return stated(counts, f"the number of nodes in {raw}")
