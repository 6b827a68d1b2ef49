"""The sub-command `inspect`: the content of a graph file, and the traffic of training on it, before a job starts."""

import argparse
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tabulate import tabulate

from hpcgnn.errors import FormatError
from hpcgnn.graphfile.field_series import GIVEN, VOLUME
from hpcgnn.graphfile.given_links import summary
from hpcgnn.graphfile.label_files import LABELS, MULTILABEL, REGRESSION
from hpcgnn.graphfile.narrow import read_scales
from hpcgnn.graphfile.schema import GraphMeta
from hpcgnn.graphfile.storage import SPLITS, GraphFile
from hpcgnn.placement.clusters import imbalance
from hpcgnn.terminal import tell
from partition_tools.canonical.rows import slabs
from partition_tools.graph.fields import load_series
from partition_tools.graph.loading import RowsOnDisk, load_edges
from partition_tools.graph.quality import partition_quality
from partition_tools.workspace.progress import Reporter

SHOWN = 12
HEADING = (
    *("map", "ranks", "imbalance (nodes)", "(in-edges)", "(rows received)", "most in-edges", "ranks without"),
    *("edges cut", "halo rows (largest)"),
)
HELP = "show counts, degrees, clusters, partitionings and halo rows"
DESCRIPTION = """Show the content of a graph file: counts, degrees, splits, classes, types and clusters. For each stored
partitioning it shows edges cut, halo rows, the balance of ranks in nodes, in-edges and received rows, the busiest rank
by in-edges, and how many ranks have none. (hpcgnn estimate has bytes, memory and seconds.)
Peak memory: 8 n bytes, and 4 E more only for maps whose figures are not stored with them."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the sub-command's options."""
    parser.add_argument("graph", type=Path, metavar="GRAPH")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def run(arguments: argparse.Namespace, reporter: Reporter | None) -> int:
    """The sub-command itself; returns the exit code."""
    info = inspect_graph(arguments.graph)
    tell(json.dumps(info, indent=2) if arguments.json else describe(info), needed=True)
    return 0


def inspect_graph(path: str | Path) -> dict[str, Any]:
    """A dictionary of plain numbers and words; `describe` shows it. Raises FormatError as `GraphFile` does."""
    with GraphFile(path) as file:
        meta = file.meta
        indptr, offsets = file.read("topology/indptr"), file.read("clusters/offsets")
        labels, split = file.read("nodes/labels"), file.read("nodes/split")
        degrees = np.diff(indptr)
        alone = degrees == 0
        if not meta.undirected:
            alone &= np.diff(file.read("topology_out/indptr")) == 0
        return {
            "file": str(path),
            "file_bytes": Path(path).stat().st_size,
            "uuid": meta.uuid,
            "source": meta.source,
            "seed": meta.seed,
            "versions": meta.versions,
            "nodes": meta.num_nodes,
            "directed_edges": meta.num_edges,
            "undirected": meta.undirected,
            "self_loops": meta.num_self_loops,
            "weighted": meta.weighted,
            "features": meta.num_features,
            "sparse_features": meta.sparse_features,
            "feature_dtype": _dtype(file),
            "edge_features": meta.num_edge_features,
            "classes": meta.num_classes,
            "task": meta.task,
            "class_sizes": _class_sizes(labels, meta),
            "targets": _targets(labels) if meta.task == REGRESSION else [],
            "class_names": meta.type_names.get("classes", []),
            "splits": {name: int(np.count_nonzero(split == value)) for name, value in SPLITS.items()},
            "held_out_edges": summary(file),
            "unlabelled": int(np.count_nonzero(~LABELS[meta.task].labelled(labels))),
            "node_types": _type_sizes(file, "nodes", meta.num_node_types),
            "edge_types": _type_sizes(file, "edges", meta.num_edge_types),
            "in_degree": _statistics(degrees) | {"isolated": int(np.count_nonzero(alone))},
            "clusters": {
                "count": meta.num_clusters,
                "nodes": _statistics(np.diff(offsets)),
                "edges": _statistics(np.diff(indptr[offsets])),
            },
            **_of_fields(file),
            "partitionings": maps_of(file),
        }


def _of_fields(file: GraphFile) -> dict[str, Any]:
    """What a file has of fields and their nodes; nothing of a file without."""
    meta, found = file.meta, dict[str, Any]()
    if meta.num_dimensions:
        found["dimensions"] = meta.num_dimensions
    if VOLUME in file:
        found["volumes"] = True
    if GIVEN in file:
        found["given_nodes"] = sum(int(np.count_nonzero(rows)) for rows in slabs(RowsOnDisk(file, GIVEN)))
    series = load_series(file)
    if series is not None:
        found["fields"], times = series.columns, series.time
        lengths = np.unique(series.number, return_counts=True)[1]
        found["snapshots"] = {"count": len(times), "trajectories": len(lengths), "of": _statistics(lengths)}
        found["times"] = {"first": float(times[0]), "last": float(times[-1])} if len(times) else {}
        found["splits_of_snapshots"] = {
            name: int(np.count_nonzero(series.split == value)) for name, value in SPLITS.items()
        }
    return found


def _class_sizes(labels: np.ndarray, meta: GraphMeta) -> list[int]:
    if meta.task == REGRESSION:
        return []
    if meta.task == MULTILABEL:
        return labels.sum(axis=0, dtype=np.int64).tolist()
    return np.bincount(labels[labels >= 0], minlength=meta.num_classes).tolist()


def _targets(labels: np.ndarray) -> list[dict[str, float]]:
    """For each column of targets, the number of known ones, and their statistics."""
    columns = labels.reshape(len(labels), -1).T.astype(np.float64)
    known = [column[np.isfinite(column)] for column in columns]
    return [{"known": len(column)} | _statistics(column) for column in known]


def _dtype(file: GraphFile) -> str | None:
    name = "nodes/features_csr/data" if file.meta.sparse_features else "nodes/features"
    found = file.number_type(name) if name in file else None
    return found if read_scales(file) is None else f"{found} with a factor for each column"


def _type_sizes(file: GraphFile, what: str, count: int) -> dict[str, int]:
    """{name of the type, or its number as text: how many} in the order of the types' numbers; {} without types."""
    if not count:
        return {}
    sizes = np.zeros(count, np.int64)
    for types in slabs(RowsOnDisk(file, f"{what}/type")):
        if not 0 <= types.min() <= types.max() < count:
            raise FormatError(
                f"{file.path}: {what}/type leaves 0..{count - 1}; "
                f"`python -m partition_tools verify {shlex.quote(str(file.path))}` says where"
            )
        sizes += np.bincount(types, minlength=count)
    names = file.meta.type_names.get(what, ())
    return dict(zip(names if len(names) == count else map(str, range(count)), sizes.tolist(), strict=True))


def _statistics(values: np.ndarray) -> dict[str, float]:
    if len(values) == 0:
        return {"min": 0, "median": 0.0, "mean": 0.0, "max": 0}
    least, most = values.min().item(), values.max().item()
    return {"min": least, "median": float(np.median(values)), "mean": float(values.mean()), "max": most}


def maps_of(file: GraphFile) -> dict[str, dict[str, dict[str, Any]]]:
    """{name: {number of ranks: figures}} of the stored maps."""
    offsets = file.read("clusters/offsets")
    pointers = file.read("topology/indptr", [(int(row), int(row) + 1) for row in offsets])
    nodes, edges = np.diff(offsets), np.diff(pointers)
    return {
        name: {str(count): _map(file, name, count, nodes, edges) for count in counts}
        for name, counts in file.partitionings().items()
    }


def _map(file: GraphFile, name: str, count: int, nodes: np.ndarray, edges: np.ndarray) -> dict[str, Any]:
    """The figures of a map. nodes, edges: int (K,), of each cluster."""
    cluster_to_rank, attributes = file.cluster_map(name, count)
    figures = {key: value.tolist() if hasattr(value, "tolist") else value for key, value in attributes.items()}
    offsets = np.concatenate([[0], np.cumsum(nodes)])
    if "halo_rows_by_rank" not in figures:
        edges_out = None if file.meta.undirected else load_edges(file, "_out")
        figures |= partition_quality(cluster_to_rank, count, offsets, load_edges(file), edges_out)
    received, sent = (np.atleast_1d(figures.pop(f"{which}_rows_by_rank")) for which in ("halo", "sent"))
    of_ranks = {
        "nodes": np.bincount(cluster_to_rank, nodes, count),
        "edges": np.bincount(cluster_to_rank, edges, count),
        "halo_rows_received": received,
        "halo_rows_sent": sent,
    }
    return figures | {
        "balance": {what: _balance(values) for what, values in of_ranks.items()},
        "busiest_rank": int(np.argmax(of_ranks["edges"])),
        "ranks_without_edges": int(np.count_nonzero(of_ranks["edges"] == 0)),
    }


def _balance(values: np.ndarray) -> dict[str, float]:
    """The mean, the largest and the largest over the mean (1.0 where all are 0) of one number per rank (P,)."""
    return {"mean": float(np.mean(values)), "largest": float(np.max(values)), "imbalance": imbalance(values)}


def map_table(maps: Mapping[str, Mapping[str, Mapping[str, Any]]], num_edges: int) -> str:
    """The figures of `maps_of` as a table for people."""
    rows = []
    for name, of_name in maps.items():
        for count, figures in of_name.items():
            balance = figures["balance"]
            row = [name, int(count)]
            row += [balance[what]["imbalance"] for what in ("nodes", "edges", "halo_rows_received")]
            row += [f"{balance['edges']['largest']:,.0f} (rank {figures['busiest_rank']})"]
            row += [f"{figures['ranks_without_edges']:,}", f"{100 * figures['edge_cut'] / max(num_edges, 1):.1f} %"]
            rows.append([*row, f"{figures['halo_rows_total']:,} ({figures['halo_rows_max']:,})"])
    return tabulate(rows, HEADING, floatfmt=".3f", stralign="right")


def describe(info: Mapping[str, Any]) -> str:
    """The dictionary of `inspect_graph` as text for people: its facts, and a table of the maps."""
    facts = [(name.replace("_", " "), _shown(value)) for name, value in info.items() if name != "partitionings"]
    text = tabulate([fact for fact in facts if fact[1]], tablefmt="plain", disable_numparse=True)
    if info["partitionings"]:
        return f"{text}\n\n{map_table(info['partitionings'], info['directed_edges'])}"
    path = shlex.quote(str(info["file"]))
    return f"{text}\n\nno maps; make some with `partition_tools partition add {path} --ranks 1,2,4`"


def _shown(value: Any) -> str:
    """A fact as text, '' for none; of many types or classes the first."""
    if isinstance(value, dict):
        parts = [(name, _shown(each)) for name, each in value.items()]
        return ", ".join([f"{name} {each}" for name, each in parts if each][:SHOWN]) + ", ..." * (len(parts) > SHOWN)
    if isinstance(value, list):
        return "; ".join(map(_shown, value[:SHOWN])) + "; ..." * (len(value) > SHOWN)
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ""}[value]
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}" if isinstance(value, float) else str(value)
