"""All promises of the format, checked against the bytes of a file.

Checksums find bytes that changed after writing. The other checks find files that were wrong when written (by another
program, an older version, or a fault in this one). They have three stages: the datasets, the values of each, and what
datasets say of each other. A stage with a fault is the last one, so the report names causes, not consequences.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpcgnn.errors import HpcgnnError
from hpcgnn.graphfile.field_series import GIVEN, POSITION, VOLUME, FieldReader, fault_of_splits, fault_of_times
from hpcgnn.graphfile.given_links import given_shapes, summary
from hpcgnn.graphfile.hdf5 import Progress
from hpcgnn.graphfile.label_files import LABELS, MULTILABEL, REGRESSION
from hpcgnn.graphfile.narrow import SCALES, are_scales
from hpcgnn.graphfile.own_ids import doubled_ids, kind_of_ids
from hpcgnn.graphfile.schema import Edges
from hpcgnn.graphfile.storage import SLAB_ROWS, SPLITS, GraphFile, expected_datasets
from partition_tools.canonical.links import link_counts
from partition_tools.canonical.rows import numbered
from partition_tools.graph.edges import count_self_loops, rows, transpose
from partition_tools.graph.fields import first_not_finite, load_series
from partition_tools.graph.loading import RowsOnDisk, load_edges, load_links
from partition_tools.graph.quality import cluster_graph, partition_quality
from partition_tools.workspace.progress import Reporter

FIGURES = ("edge_cut", "halo_rows_total", "halo_rows_max")
#: (name of a check, '' or what is wrong)
Checked = Iterator[tuple[str, str]]


@dataclass
class Check:
    """One promise of the format. ok: None where it could not be checked. detail: the finding, or a remark."""

    name: str
    ok: bool | None
    detail: str = ""


def verification(file: GraphFile, reporter: Reporter) -> list[Check]:
    """The checks of an open graph file, in the order in which they build on one another."""
    checks: list[Check] = []
    for stage in (_datasets, _values, _agreement):
        checks += [Check(name, not fault, fault) for name, fault in stage(file, reporter)]
        if not all(check.ok for check in checks):
            return checks if stage is _agreement else [*checks, Check("all further checks", None, "need those above")]
    for split, held in summary(file).items():
        checks += [Check(f"held-out edges of {split}", True, fault) for fault in held["faults"]]
    if not file.meta.negatives and not (file.read("nodes/split") == SPLITS["train"]).any():
        checks.append(Check("training split", True, "empty; training will refuse this graph"))
    return checks


def _tried(function: Callable[..., str], *arguments: Any) -> str:
    """What a function finds, or its error."""
    try:
        return function(*arguments)
    except HpcgnnError as error:
        return str(error)


def _datasets(file: GraphFile, reporter: Reporter) -> Checked:
    """Each dataset has its shape, its type and its bytes."""
    expected: dict[str, tuple[tuple[int, ...] | None, str]] = {**expected_datasets(file)}
    count = file.meta.num_clusters
    if "clusters/graph" in file:
        expected |= {f"clusters/graph/{part}": (None, "iu") for part in ("indices", "weight")}
        expected["clusters/graph/indptr"] = (count + 1,), "iu"
    for name, ranks in file.partitionings().items():
        expected |= {f"partitionings/{name}/{each}": ((count,), "iu") for each in ranks}
    with reporter.bar(len(expected), f"reading {file.path}", "datasets") as progress:
        for name, (shape, kinds) in expected.items():
            yield name, _tried(_unreadable, file, name, shape, kinds)
            progress(1)


def _unreadable(file: GraphFile, name: str, shape: tuple[int, ...] | None, kinds: str) -> str:
    found = file.shape(name)
    if shape is not None and found != shape:
        return f"has shape {found}, expected {shape}"
    if file.read(name, [(0, 0)]).dtype.kind not in kinds:
        return f"has type {file.dtype(name)}"
    if name.startswith("snapshots/"):  # the check of its values reads it, time by time
        return ""
    for start in range(0, found[0], SLAB_ROWS * 16):
        file.read(name, [(start, min(start + SLAB_ROWS * 16, found[0]))])
    return ""


def _suffixes(file: GraphFile) -> tuple[str, ...]:
    return ("",) if file.meta.undirected else ("", "_out")


def _values(file: GraphFile, reporter: Reporter) -> Checked:
    """The values of each dataset are in their range."""
    read, meta, n = file.read, file.meta, file.meta.num_nodes
    reporter.stage("checking values")
    for suffix in _suffixes(file):
        yield f"row pointers{suffix}", _pointers(read(f"topology{suffix}/indptr"), meta.num_edges)
        yield f"index range{suffix}", _range(read(f"topology{suffix}/indices"), 0, n, "edge")
        if meta.weighted:
            wrong = ~np.isfinite(read(f"edges{suffix}/weight"))
            yield f"finite weights{suffix}", _first(wrong, "edge {} has a weight that is not finite")
        if meta.typed:
            yield f"edge types{suffix}", _range(read(f"edges{suffix}/type"), 0, meta.num_edge_types, "edge")
    if meta.num_edge_features:
        yield "finite edge features", _finite(file, "edges/features", "edge")
    if meta.sparse_features:
        pointers, columns, data = (f"nodes/features_csr/{name}" for name in ("indptr", "indices", "data"))
        yield "row pointers of features", _pointers(read(pointers), file.shape(columns)[0])
        yield "columns of features", _range(read(columns), 0, meta.num_features, "entry")
        yield "finite features", _first(~np.isfinite(read(data)), "entry {} is not finite")
    elif meta.num_features:
        yield "finite features", _finite(file, "nodes/features", "node")
        if SCALES in file:
            yield "factors of features", _first(~are_scales(read(SCALES)), "that of column {} is no power of two")
    labels, split = read("nodes/labels"), read("nodes/split")
    if meta.task == REGRESSION:
        yield "labels in classes", LABELS[REGRESSION].fault(labels, meta.num_classes)
    else:
        low, high = (0, 2) if meta.task == MULTILABEL else (-1, meta.num_classes)
        yield "labels in classes", _range(labels.reshape(-1), low, high, "label")
    yield "split values", _range(split, 0, len(SPLITS) + 1, "node")
    unlabelled = (split > 0) & ~LABELS[meta.task].labelled(labels)
    yield "split nodes have labels", _first(unlabelled, "node {} is in a split but has no label")
    ids = read("nodes/original_id")
    outside = _range(ids, 0, n, "node")
    twice = "" if outside else _first(np.bincount(ids, minlength=n) != 1, "id {} is not there exactly once")
    yield "original_id is a permutation", outside or twice
    if kind_of_ids(file):
        yield "ids are distinct", _tried(doubled_ids, file)
    for name in given_shapes(file):
        yield f"held-out nodes of {name.split('/')[1]}", _held_outside(file, name)
    if meta.num_node_types:
        yield "node types", _range(read("nodes/type"), 0, meta.num_node_types, "node")
    yield "cluster offsets", _pointers(read("clusters/offsets"), n)
    yield from _fields(file, reporter)


def _fields(file: GraphFile, reporter: Reporter) -> Checked:
    """The values of fields, and of what nodes have for them."""
    if file.meta.num_dimensions:
        text = "node {} has a position that is NaN or infinite"
        yield "finite positions", _first_row(file, POSITION, lambda slab: ~np.isfinite(slab), text)
    if VOLUME in file:
        volume = file.read(VOLUME)
        yield "volumes", _first(~(volume >= 0) | np.isinf(volume), "node {} has none of at least 0")
    if GIVEN in file:
        yield "given nodes", _range(file.read(GIVEN), 0, 2, "node")
    series = load_series(file)
    if series is not None:
        yield "times of snapshots", fault_of_times(series.time, series.number)
        yield "splits of snapshots", fault_of_splits(series.split, len(SPLITS))
        with reporter.bar(len(series.fields) * len(series.time), "checking fields", "snapshots") as progress:
            for name, field in series.fields.items():
                yield f"finite field {name}", _tried(_not_finite, file, field, name, series.time, progress)


def _not_finite(file: GraphFile, field: FieldReader, name: str, times: np.ndarray, progress: Progress) -> str:
    for time, at in enumerate(times):
        for start in range(0, file.meta.num_nodes, SLAB_ROWS):
            found = first_not_finite(field[time : time + 1, start : start + SLAB_ROWS])
            if found:
                node = start + found[1]
                (number,) = file.read("nodes/original_id", [(node, node + 1)])
                return f"NaN or infinite at snapshot {time} (time {at:g}), node {node} (original id {number})"
        progress(1)
    return ""


def _finite(file: GraphFile, name: str, what: str) -> str:
    text = f"{what} {{}} has a feature that is NaN or infinite"
    return _first_row(file, name, lambda slab: ~np.isfinite(slab), text)


def _held_outside(file: GraphFile, name: str) -> str:
    nodes = file.meta.num_nodes
    text = f"row {{}} of {name} has a node outside 0..{nodes - 1}"
    return _first_row(file, name, lambda slab: (slab < 0) | (slab >= nodes), text)


def _first_row(file: GraphFile, name: str, wrong: Callable[[np.ndarray], np.ndarray], text: str) -> str:
    for start, slab in numbered(RowsOnDisk(file, name)):
        rows_of_slab = wrong(slab).any(axis=1)
        if rows_of_slab.any():
            return text.format(start + int(np.argmax(rows_of_slab)))
    return ""


def _agreement(file: GraphFile, reporter: Reporter) -> Checked:
    """Datasets and attributes agree with each other."""
    meta = file.meta
    reporter.stage("comparing edges, clusters and maps")
    yield "numbers and names of types", _names(file)
    edges = load_edges(file)
    others = edges if meta.undirected else load_edges(file, "_out")
    for suffix, each in zip(_suffixes(file), (edges, others), strict=False):
        yield f"sorted rows{suffix}", _unsorted(each)
    yield "symmetric as stated" if meta.undirected else "topology_out is the transpose", _turned(edges, others)
    loops = count_self_loops(edges)
    stated = f"found {loops}, stated {meta.num_self_loops}"
    yield "self loops", "" if loops == meta.num_self_loops else stated
    if meta.negatives:
        yield "numbers of held-out pairs", _held_counts(file, edges)
    if "clusters/graph" in file:
        sizes = np.diff(file.read("clusters/offsets"))
        found = cluster_graph(np.repeat(np.arange(len(sizes)), sizes), len(sizes), edges, not meta.undirected)
        stored = file.cluster_graph()
        same = all(
            np.array_equal(getattr(found, part), getattr(stored, part)) for part in ("indptr", "indices", "data")
        )
        yield "cluster graph", "" if same else "does not agree with the edges"
    for name, counts in file.partitionings().items():
        for count in counts:
            yield f"map {name}/{count}", _tried(_wrong_map, file, name, count, edges)


def _names(file: GraphFile) -> str:
    meta = file.meta
    if meta.num_edge_types and not meta.typed:
        return f"num_edge_types is {meta.num_edge_types}, but the edges are not typed"
    for what, count in (
        ("types of nodes", meta.num_node_types),
        ("types of edges", meta.num_edge_types),
        ("classes", meta.num_classes),
    ):
        names = meta.type_names.get(what.split()[-1], ())
        if names and len(names) != count:
            return f"{count} {what} but {len(names)} names of them"
    return ""


def _unsorted(edges: Edges) -> str:
    if len(edges.indices) < 2:
        return ""
    row = rows(edges)
    falls = edges.indices[1:] < edges.indices[:-1]
    tie = edges.indices[1:] == edges.indices[:-1]
    for array in (edges.type, edges.weight):
        if array is not None:
            falls |= tie & (array[1:] < array[:-1])
            tie = tie & (array[1:] == array[:-1])
    wrong = (row[1:] == row[:-1]) & falls
    return f"the edges of node {row[int(np.argmax(wrong))]} are not in order" if wrong.any() else ""


def _turned(edges: Edges, others: Edges) -> str:
    turned = transpose(edges)
    if not np.array_equal(turned.indptr, others.indptr):
        node = int(np.argmax(np.diff(turned.indptr) != np.diff(others.indptr)))
        return f"node {node} does not have as many edges one way as the other"
    for name, what in (("indices", "ends"), ("weight", "weights"), ("type", "types")):
        one, two = getattr(turned, name), getattr(others, name)
        if one is not None and not np.array_equal(one, two):
            return f"the {what} differ, first at node {rows(others)[np.argmax(one != two)]}"
    return ""


def _held_counts(file: GraphFile, edges: Edges) -> str:
    links = load_links(file)
    found = link_counts(links, edges, np.argsort(file.read("nodes/original_id")))
    for split, given in links.items():
        for name, stated in given.counts.items():
            if stated != found[split][name]:
                return f"{name} of {split}: stated {stated}, found {found[split][name]}"
    return ""


def _wrong_map(file: GraphFile, name: str, count: int, edges: Edges) -> str:
    parts, stored = file.cluster_map(name, count)
    unused = count - len(np.unique(parts))
    if unused:
        return f"{unused} of {count} ranks have no cluster"
    quality = partition_quality(parts, count, file.read("clusters/offsets"), edges)
    wrong = [key for key in FIGURES if key in stored and stored[key] != quality[key]]
    return "".join(f"{key} is stated as {stored[key]} but is {quality[key]}" for key in wrong[:1])


def _pointers(pointers: np.ndarray, last: int) -> str:
    if len(pointers) == 0 or pointers[0] != 0:
        return "does not begin with 0"
    if (np.diff(pointers) < 0).any():
        return f"falls at {int(np.argmax(np.diff(pointers) < 0))}"
    return "" if pointers[-1] == last else f"ends with {pointers[-1]}, expected {last}"


def _range(values: np.ndarray, low: int, high: int, what: str) -> str:
    return _first((values < low) | (values >= high), f"{what} {{}} has a value outside {low}..{high - 1}")


def _first(wrong: np.ndarray, message: str) -> str:
    return message.format(int(np.argmax(wrong))) if wrong.any() else ""
