"""From a raw graph to the arrays of the file: checked, in one dtype per array, named by their content.

A graph that passes can be trained on. So the import finds every mistake in the data (a label outside its classes, a
NaN, a node in two splits) and names the node. Otherwise rank 317 would find it in epoch 12.
"""

import dataclasses
import hashlib
import itertools
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata

import numpy as np

import hpcgnn
from hpcgnn.errors import ConfigError, GraphError
from hpcgnn.graphfile.given_links import faults, stored_links
from hpcgnn.graphfile.label_files import LABELS, REGRESSION
from hpcgnn.graphfile.own_ids import packed
from hpcgnn.graphfile.schema import SPLITS, Csr, GraphData, RowReader
from hpcgnn.graphfile.storage import SLAB_ROWS
from partition_tools.canonical.codes import Codes
from partition_tools.canonical.edge_features import GatheredRows, canonical_edge_features
from partition_tools.canonical.features import DTYPES, canonical_features
from partition_tools.canonical.imported_edges import imported_edges
from partition_tools.canonical.labels import canonical_labels
from partition_tools.canonical.links import canonical_links, link_counts
from partition_tools.canonical.rows import RowMap, slabs
from partition_tools.canonical.splits import canonical_split
from partition_tools.canonical.targets import canonical_targets
from partition_tools.canonical.typed import canonical_names, canonical_types, numbered_types
from partition_tools.graph.counts import check_count
from partition_tools.graph.raw import DataError, RawGraph
from partition_tools.workspace.scratch import Scratch
from partition_tools.workspace.settings import check_choices, key, truth


@dataclass(frozen=True)
class ImportOptions:
    """Changes that an import may make to a graph.

    Attributes:
        fractions: (train, val, test) of a random split; None for no such split.
        seed: seed of that split.
        resplit: whether it replaces the source's own.
        add_reverse: give each edge type a reverse type.
        task: task of the labels; `auto` finds whether they are classes or 0/1 labels.
        standardize: scale the columns of the features by the training nodes' mean and deviation.

    Raises:
        ConfigError: an unknown value, and a new split without fractions.
    """

    undirected: bool = key("edges.undirected", False, "add missing reverse edges, and merge parallel ones", truth)
    self_loops: str = key(
        "edges.self_loops", "keep", "keep, remove, or add one to each node without", choices=("keep", "add", "remove")
    )
    drop_duplicates: bool = key(
        "edges.drop_duplicates", False, "keep one of the edges with equal ends and type, the lightest", truth
    )
    drop_weights: bool = key("edges.drop_weights", False, "ignore the weights of edges", truth)
    row_normalize: bool = key(
        "features.row_normalize", False, "divide the features of a node by the sum of their absolute values", truth
    )
    standardize: bool = key(
        "features.standardize", False, "scale columns by the training nodes' mean and deviation", truth
    )
    feature_dtype: str = key("features.dtype", "fp32", "type of dense features", choices=tuple(DTYPES))
    num_classes: int | None = key("labels.classes", None, "number of classes (default: the largest label + 1)", int)
    name: str | None = key("graph.name", None, "name of the graph in the file (default: of the input)")
    fractions: Sequence[float] | None = None
    seed: int = key("split.seed", 0, "seed of the random split", int)
    add_reverse: bool = key("edges.add_reverse", False, "give each edge type a reverse, of a type of its own", truth)
    resplit: bool = key("split.resplit", False, "let the random split replace the input's own", truth)
    task: str = key("labels.task", "auto", "task of the labels", choices=("auto", *LABELS))

    def __post_init__(self) -> None:
        check_choices(self)
        if not 0 <= self.seed < 2**63:
            raise ConfigError(f"the seed must be from 0 to 2^63 - 1, got {self.seed}")
        if self.resplit and self.fractions is None:
            raise ConfigError("split.resplit needs the fractions of the new split: --train or --val")


def canonical(raw: RawGraph, options: ImportOptions, scratch: Scratch) -> GraphData:
    """`_canonical`, with mistakes of the data in the source's words."""
    try:
        return _canonical(raw, options, scratch)
    except DataError as error:
        raise raw.named(error) from error


def _canonical(raw: RawGraph, options: ImportOptions, scratch: Scratch) -> GraphData:
    """`GraphData` of a `RawGraph`, one cluster, nodes in the order of the source. Takes the edges out of `raw`.

    scratch: the directory where edges are sorted if they do not fit in its memory. Raises GraphError naming node or
    edge. Memory: 24 E bytes, then 17 E bytes, or the scratch directory's limit, in addition to the features and the
    source's own arrays.
    """
    reporter = scratch.reporter
    n = raw.num_nodes
    check_count(n)
    if raw.ids is not None and len(raw.ids) != n:
        raise GraphError(f"there are {n} nodes but {len(raw.ids)} ids of nodes; expected one for each, or none")
    reporter.stage(f"checking {n:,} nodes")
    split = canonical_split(raw.split, n, options.fractions, options.seed, options.resplit, raw.labels, options.task)
    train = split == SPLITS["train"] if options.standardize else None
    features = canonical_features(raw.features, n, options.feature_dtype, options.row_normalize, reporter, train)
    named = raw.type_names
    raw.type, edge_names = numbered_types(raw.type, "edge", named.get("edges", ()))
    raw.node_type, node_names = numbered_types(raw.node_type, "node", named.get("nodes", ()))
    names = canonical_names(named | {"nodes": node_names, "edges": edge_names})
    num_classes = raw.num_classes if options.num_classes is None else options.num_classes
    if options.task == REGRESSION:
        labels, num_classes = canonical_targets(raw.labels, n, split)
        _check_targets(names, num_classes, options.num_classes)
    else:
        classes = names.get("classes", ())
        labels, num_classes = canonical_labels(raw.labels, n, split, num_classes, classes, options.task)
    node_type = canonical_types(raw.node_type, n, "node", names.get("nodes", ()))
    links = canonical_links(raw.links, n)
    featured: RowReader | None = None
    if raw.edge_features is not None:
        featured = canonical_edge_features(raw.edge_features, raw.src.shape[0], reporter)
    edges, edges_out, loops, edge_names = imported_edges(raw, options, names.get("edges", []), scratch)
    if featured is not None and edges.row is not None:
        featured, edges.row = GatheredRows(featured, edges.row, scratch.memory // 4), None
    if edge_names:
        names = names | {"edges": edge_names}
    if raw.snapshots is not None:
        reporter.warn(
            f"all snapshots, {len(raw.snapshots.time)}, are for training; `python -m partition_tools snapshots GRAPH "
            "--split 0.8/0.1/0.1 --force` splits them by their times"
        )
    elif raw.position is not None:
        reporter.warn("the mesh has no fields; `python -m partition_tools snapshots GRAPH NAME=FILE` adds some")
    elif features is None:
        reporter.warn("the graph has no node features; train with --features degree, or learned:64")
    for held, counts in link_counts(links, edges).items():
        links[held] = given = dataclasses.replace(links[held], counts=counts)
        for text in faults(held, given.edges.shape[0], given.num_negatives, counts):
            reporter.warn(text)
    learned = links or raw.position is not None
    if not num_classes and not learned:
        only = "; it can be trained on with --task links only"
        vain = ", so --train and --val have no effect; import it with --labels FILE, or train with --task links"
        reporter.warn(f"the graph has no labels{only if options.fractions is None else vain}")
    if not np.any(split == SPLITS["train"]) and not learned:
        reporter.warn(
            "the training split is empty; training will refuse this graph (--train 0.5 makes a random split, with "
            "split.resplit=true in place of the input's own)"
        )
    data = GraphData(
        edges=edges,
        edges_out=edges_out,
        features=features,
        labels=labels,
        split=split,
        original_id=np.arange(n),
        cluster_offsets=np.array([0, n]),
        num_classes=num_classes,
        uuid="",
        source=options.name or raw.source,
        seed=raw.seed,
        versions=versions(),
        num_self_loops=loops,
        node_type=node_type,
        type_names=names,
        ids=None if raw.ids is None else packed(raw.ids),
        edge_features=featured,
        links=links,
        bfloat16=options.feature_dtype == "bf16" and isinstance(features, RowMap),
        feature_scales=features.scales if isinstance(features, Codes) else None,
        position=raw.position,
        snapshots=raw.snapshots,
    )
    reporter.stage("naming the graph by its content (SHA-256)")
    data.uuid = content_uuid(data, raw.identity)
    return data


def _check_targets(names: Mapping[str, Sequence[str]], targets: int, num_classes: int | None) -> None:
    """Raise GraphError if a regression is requested, and labels or options are of classes. names: of columns, if there
    is one for each of several targets.
    """
    words = names.get("classes", ())
    if words and targets > 1 and len(words) != targets:
        raise GraphError(f"the labels have {targets} columns and {len(words)} names; expected a name for each")
    if words and targets <= 1:
        raise GraphError(
            f"labels.task=regression: expected numbers, and the labels are words ({', '.join(words[:3])}"
            f"{', ...' if len(words) > 3 else ''}); give numbers, or leave the task out"
        )
    if num_classes is not None:
        raise GraphError(
            f"labels.task=regression has no classes, got labels.classes={num_classes}; leave one of them out"
        )


def content_uuid(data: GraphData, identity: bytes | None = None) -> str:
    """A UUID from the SHA-256 of the graph's content in original order: the same input has the same name everywhere.

    data: `GraphData` in original order. identity: bytes to hash in place of the features. The ids of the nodes are
    no part of it: the same graph under other ids trains to the same model.
    """
    digest = hashlib.sha256()

    def add(name: str, array: RowReader) -> None:
        digest.update(f"{name}:{np.dtype(array.dtype).str}:{tuple(array.shape)};".encode())
        for slab in slabs(array):
            digest.update(np.ascontiguousarray(slab).data)

    for name in ("indptr", "indices", "weight", "type"):
        if getattr(data.edges, name) is not None:
            add(name, getattr(data.edges, name))
    if data.edge_features is not None:
        add("edge_features", data.edge_features)
    if identity is not None:
        digest.update(identity)
    elif isinstance(data.features, Csr):
        for name in ("indptr", "indices", "data"):
            add(f"features_{name}", getattr(data.features, name))
    elif data.features is not None:
        add("features", data.features)
        if data.feature_scales is not None:
            add("feature_scales", data.feature_scales)
    add("labels", data.labels)
    add("split", data.split)
    if data.node_type is not None:
        add("node_type", data.node_type)
    for name, array, _ in stored_links(data.links):
        add(name, array)
    if data.position is not None:
        add("position", data.position)
    if series := data.snapshots:
        for name in ("time", "number", "split"):
            add(name, getattr(series, name))
        for name, field in series.fields.items():
            digest.update(f"{name}:{np.dtype(field.dtype).str}:{tuple(field.shape)};".encode())
            for time, start in itertools.product(range(field.shape[0]), range(0, field.shape[1], SLAB_ROWS)):
                rows = field[time : time + 1, start : start + SLAB_ROWS]
                digest.update(np.ascontiguousarray(rows).data)
    return str(uuid.UUID(bytes=digest.digest()[:16], version=5))


def versions(**others: str) -> dict[str, str]:
    """Versions of the programs that wrote a file, for its root attribute."""
    return {"hpcgnn": hpcgnn.__version__, "numpy": np.__version__, "h5py": metadata.version("h5py"), **others}
