"""The sub-command `inspect`: the content of a graph file, and the traffic of training on it, before a job starts."""

import argparse
import csv
import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
from tabulate import tabulate

from hpcgnn.errors import FormatError
from hpcgnn.graphfile.given_links import HELD, name_of, summary
from hpcgnn.graphfile.hdf5 import replacing
from hpcgnn.graphfile.labels import LABELS, MULTILABEL, REGRESSION
from hpcgnn.graphfile.narrow import read_scales
from hpcgnn.graphfile.own_ids import ids_of
from hpcgnn.graphfile.schema import GraphMeta
from hpcgnn.graphfile.storage import SLAB_ROWS, SPLITS, GraphFile
from hpcgnn.output_files import check_outputs
from hpcgnn.terminal import tell
from partition_tools.canonical.rows import numbered
from partition_tools.graph.compute_nodes import check_grouping, node_attributes
from partition_tools.graph.loading import StoredRows, load_edges
from partition_tools.graph.quality import partition_quality
from partition_tools.workspace.progress import Reporter

SHOWN_TYPES, WIDTH = 12, 256
TASKS = {MULTILABEL: " (multi-label)", REGRESSION: " (regression)"}
HELP = "show counts, degrees, clusters, partitionings and halo rows"
DESCRIPTION = """Show the content of a graph file: counts, degrees, splits, classes, types and clusters. For each stored
partitioning it shows edges cut, halo rows, and the bytes of one exchange of fp32 rows of --width features. It also
shows the balance of ranks in nodes, in-edges, and halo rows, the busiest rank by in-edges, and how many ranks have
none. (hpcgnn estimate has memory and seconds.)
Peak memory: 8 n bytes, and 4 E more only for maps whose figures are not stored with them."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the sub-command's options."""
    parser.add_argument("graph", type=Path, metavar="GRAPH")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument(
        "--width", type=int, default=WIDTH, metavar="W", help=f"numbers of a row in an exchange (default {WIDTH})"
    )
    parser.add_argument(
        "--held-out", type=Path, metavar="FILE", help="also write the held-out edges, with their ids, to a .csv"
    )
    parser.add_argument("--force", action="store_true", help="replace the file of --held-out if it exists")
    parser.add_argument(
        "--per-node",
        type=int,
        metavar="R",
        help="show the maps on compute nodes of R consecutive ranks, counted from the edges (default: maps that "
        "`partition add --per-node` made, as they were made)",
    )


def run(arguments: argparse.Namespace, reporter: Reporter | None) -> int:
    """The sub-command itself; returns the exit code."""
    if arguments.held_out:
        write_held_out(arguments.graph, arguments.held_out, arguments.force)
    info = inspect_graph(arguments.graph, arguments.width, arguments.per_node)
    tell(json.dumps(info, indent=2) if arguments.json else describe(info), needed=True)
    return 0


def write_held_out(path: Path, output: Path, force: bool = False) -> None:
    """Write the held-out edges of a graph file to a new table in CSV: the ids of source and target, and the split.
    Raises FormatError for a graph without any.
    """
    check_outputs({"--held-out": output}, [path], force)
    with GraphFile(path) as file:
        splits = [split for split in HELD if name_of(split) in file]
        if not splits:
            raise FormatError(
                f"--held-out: expected a graph with held-out edges, and {path} has none; those that a run draws are "
                "written by hpcgnn predict RUN_DIR --held-out -o FILE.csv"
            )
        with replacing(output) as name, open(name, "w", encoding="utf-8", newline="") as out:
            table = csv.writer(out, lineterminator="\n")
            table.writerow(("source", "target", "split"))
            for split in splits:
                for _, pairs in numbered(StoredRows(file, name_of(split))):
                    ends = (ids_of(file, nodes) for nodes in pairs.astype(np.int64).T)
                    table.writerows(zip(*ends, [split] * len(pairs), strict=True))


def inspect_graph(path: str | Path, width: int = WIDTH, per_node: int | None = None) -> dict[str, Any]:
    """A dictionary of plain numbers and words; `describe` explains them. per_node: ranks of a compute node, None for
    the number of each map. Raises FormatError as `GraphFile` does, and ConfigError for a per_node below 1.
    """
    if per_node is not None:
        check_grouping(per_node, ())
    with GraphFile(path) as file:
        meta = file.meta
        indptr, offsets = file.read("topology/indptr"), file.read("clusters/offsets")
        degrees, sizes = np.diff(indptr), np.diff(offsets)
        labels, split = file.read("nodes/labels"), file.read("nodes/split")
        cluster_edges = np.diff(indptr[offsets])
        info = {
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
            "typed": meta.typed,
            "features": meta.num_features,
            "sparse_features": meta.sparse_features,
            "feature_dtype": _dtype(file),
            "edge_features": meta.num_edge_features,
            "classes": meta.num_classes,
            "task": meta.task,
            "multi_label": meta.task == MULTILABEL,
            "class_sizes": _class_sizes(labels, meta),
            "targets": _targets(labels) if meta.task == REGRESSION else [],
            "class_names": meta.type_names.get("classes", []),
            "splits": {name: int(np.count_nonzero(split == value)) for name, value in SPLITS.items()},
            "held_out_edges": summary(file),
            "unlabelled": int(np.count_nonzero(~LABELS[meta.task].labelled(labels))),
            "node_types": _type_sizes(file, "nodes", meta.num_node_types),
            "edge_types": _type_sizes(file, "edges", meta.num_edge_types),
            "in_degree": _statistics(degrees) | {"isolated": _isolated(file, degrees)},
            "clusters": {
                "count": meta.num_clusters,
                "nodes": _statistics(sizes),
                "edges": _statistics(cluster_edges),
                "internal_edge_fraction": _internal_fraction(file),
            },
            "partitionings": {
                name: {str(count): _map(file, name, count, width, per_node) for count in counts}
                for name, counts in file.partitionings().items()
            },
        }
    return info


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
    return [
        {"known": len(column)}
        | ({} if not len(column) else {name: float(getattr(column, name)()) for name in ("min", "mean", "std", "max")})
        for column in known
    ]


def _dtype(file: GraphFile) -> str | None:
    name = "nodes/features_csr/data" if file.meta.sparse_features else "nodes/features"
    found = file.number_type(name) if name in file else None
    return found if read_scales(file) is None else f"{found} with a factor for each column"


def _type_sizes(file: GraphFile, what: str, count: int) -> dict[str, int]:
    """{name of the type, or its number as text: how many} in the order of the types' numbers; {} without types."""
    if not count:
        return {}
    name, sizes = f"{what}/type", np.zeros(count, np.int64)
    for start in range(0, file.shape(name)[0], SLAB_ROWS * 16):
        types = file.read(name, [(start, min(start + SLAB_ROWS * 16, file.shape(name)[0]))])
        if not 0 <= types.min() <= types.max() < count:
            raise FormatError(
                f"{file.path}: {name} leaves 0..{count - 1}; "
                f"`python -m partition_tools verify {shlex.quote(str(file.path))}` says where"
            )
        sizes += np.bincount(types, minlength=count)
    names = file.meta.type_names.get(what, ())
    return dict(zip(names if len(names) == count else map(str, range(count)), sizes.tolist(), strict=True))


def _statistics(values: np.ndarray) -> dict[str, float]:
    if len(values) == 0:
        return {"min": 0, "median": 0.0, "mean": 0.0, "max": 0}
    return {
        "min": int(values.min()),
        "median": float(np.median(values)),
        "mean": float(values.mean()),
        "max": int(values.max()),
    }


def _isolated(file: GraphFile, degrees: np.ndarray) -> int:
    """Nodes without any edge. A node whose only edges are self loops is not counted."""
    if file.meta.undirected:
        return int(np.count_nonzero(degrees == 0))
    return int(np.count_nonzero((degrees == 0) & (np.diff(file.read("topology_out/indptr")) == 0)))


def _internal_fraction(file: GraphFile) -> float | None:
    """Share of the edges that stay within a cluster, or None where no cluster graph is stored."""
    if "clusters/graph" not in file or not file.meta.num_edges:
        return None
    indptr, indices, weight = (file.read(f"clusters/graph/{name}") for name in ("indptr", "indices", "weight"))
    row = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return float(weight[row == indices].sum() / weight.sum())


def _map(file: GraphFile, name: str, count: int, width: int, per_node: int | None = None) -> dict[str, Any]:
    cluster_to_rank, attributes = file.cluster_map(name, count)
    figures = {key: value.tolist() if hasattr(value, "tolist") else value for key, value in attributes.items()}
    offsets = file.read("clusters/offsets")
    if "halo_rows_by_rank" not in figures:
        edges_out = None if file.meta.undirected else load_edges(file, "_out")
        figures |= partition_quality(cluster_to_rank, count, offsets, load_edges(file), edges_out).attributes()
    if per_node is not None and per_node != figures.get("ranks_per_node"):
        figures |= node_attributes(cluster_to_rank, count, per_node, offsets, load_edges(file))
    received, sent = (np.atleast_1d(figures.pop(f"{which}_rows_by_rank")) for which in ("halo", "sent"))
    nodes = np.bincount(cluster_to_rank, np.diff(offsets), count)
    pointers = file.read("topology/indptr", [(int(row), int(row) + 1) for row in offsets])
    edges = np.bincount(cluster_to_rank, np.diff(pointers), count)
    return figures | {
        "width": width,
        "halo_bytes_per_layer": 4 * width * figures["halo_rows_total"],
        "halo_bytes_per_layer_max_rank": 4 * width * figures["halo_rows_max"],
        "balance": {
            "nodes": _balance(nodes),
            "edges": _balance(edges),
            "halo_rows_received": _balance(received),
            "halo_rows_sent": _balance(sent),
        },
        "busiest_rank": int(np.argmax(edges)),
        "ranks_without_edges": int(np.count_nonzero(edges == 0)),
    }


def _balance(values: np.ndarray) -> dict[str, float]:
    """The mean, the largest and the largest over the mean (1.0 where all are 0) of one number per rank (P,)."""
    mean, largest = float(np.mean(values)), float(np.max(values))
    return {"mean": mean, "largest": largest, "imbalance": largest / mean if mean else 1.0}


def describe(info: dict[str, Any]) -> str:
    """The dictionary of `inspect_graph` as text for people: its facts, and a table of the maps."""
    facts = [(name.replace("_", " "), _shown(value)) for name, value in info.items() if name != "partitionings"]
    text = tabulate([fact for fact in facts if fact[1]], tablefmt="plain", disable_numparse=True)
    maps = [
        (
            *(name, int(count), m["balance"]["nodes"]["imbalance"], m["balance"]["edges"]["imbalance"]),
            f"{m['balance']['edges']['largest']:,.0f} (rank {m['busiest_rank']})",
            f"{m['ranks_without_edges']:,}",
            f"{100 * m['edge_cut'] / max(info['directed_edges'], 1):.1f} %",
            *(f"{m[total]:,} ({m[largest]:,})" for total, largest in (*_ROWS, *_BYTES)),
            *((f"{m[total]:,} ({m[largest]:,})" for total, largest in _NODES) if "ranks_per_node" in m else ()),
        )
        for name, of_name in info["partitionings"].items()
        for count, m in sorted(of_name.items(), key=lambda item: int(item[0]))
    ]
    if not maps:
        path = shlex.quote(str(info["file"]))
        return f"{text}\n\nno maps; make some with `partition_tools partition add {path} --ranks 1,2,4`"
    heading = ["map", "ranks", "imbalance (nodes)", "(in-edges)", "most in-edges", "ranks without", "edges cut"]
    heading += ["halo rows (largest)", "bytes per exchange (largest)"]
    heading += ["rows of nodes (largest)"] * any(len(row) > len(heading) for row in maps)
    return f"{text}\n\n{tabulate(maps, heading, floatfmt='.3f', stralign='right')}"


_ROWS = (("halo_rows_total", "halo_rows_max"),)
_BYTES = (("halo_bytes_per_layer", "halo_bytes_per_layer_max_rank"),)
_NODES = (("compute_node_halo_rows_total", "compute_node_halo_rows_max"),)


def _shown(value: Any) -> str:
    """A fact as text, '' for none; of many types or classes the largest."""
    if isinstance(value, dict):
        items = list(value.items())
        if len(items) > SHOWN_TYPES and all(isinstance(number, int) for number in value.values()):
            items = [*sorted(items, key=lambda item: -item[1])[:SHOWN_TYPES], ("...", "")]
        parts = [(name, _shown(each)) for name, each in items]
        return ", ".join(f"{name} {each}".strip() for name, each in parts if each or name == "...")
    if isinstance(value, list):
        return "; ".join(_shown(each) for each in value[:SHOWN_TYPES]) + ("; ..." if len(value) > SHOWN_TYPES else "")
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ""}[value]
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}" if isinstance(value, float) else str(value)
