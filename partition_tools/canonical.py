"""From a raw graph to what the file holds: checked, in one dtype per array, named by its content.

Whatever passes here can be trained on, so every mistake in the data (a label outside its classes, a NaN, a node in two
splits) is found once, at import, with the node named, rather than on rank 317 in epoch 12.
"""

import hashlib
import uuid
from dataclasses import dataclass
from importlib import metadata

import numpy as np

import hpcgnn
from hpcgnn.errors import ConfigError, GraphError
from hpcgnn.graph.schema import SPLITS, Csr, GraphData, count_types
from partition_tools.counts import check_count
from partition_tools.edges import canonical_edges, check_endpoints
from partition_tools.features import canonical_features, slabs
from partition_tools.progress import Reporter
from partition_tools.typed import canonical_names, canonical_types, type_warnings, with_reverse


MOST_LABEL = 2**31 - 2


@dataclass(frozen=True)
class ImportOptions:
    """What may be done to a graph on the way in.

    fractions: (train, val, test) of a random split; None for no such split. seed: of that split. resplit: whether it replaces
    the source's own. add_reverse: give each edge type a reverse type.
    """

    undirected: bool = False
    self_loops: str = "keep"
    drop_duplicates: bool = False
    drop_weights: bool = False
    row_normalize: bool = False
    feature_dtype: str = "fp32"
    num_classes: int | None = None
    name: str | None = None
    fractions: tuple | None = None
    seed: int = 0
    add_reverse: bool = False
    resplit: bool = False


def canonical(raw, options=ImportOptions(), reporter=None):
    """`GraphData` of a `RawGraph`, one cluster, nodes in the order of the source. Takes the edges out of `raw`.

    Raises GraphError naming node or edge. Memory: 24 E bytes, then 17 E bytes, beside features and what the source
    holds.
    """
    reporter = reporter or Reporter()
    n = raw.num_nodes
    check_count(n)
    reporter.stage(f"checking {n:,} nodes")
    features = canonical_features(raw.features, n, options.feature_dtype, options.row_normalize, reporter)
    split = canonical_split(raw.split, n, options.fractions, options.seed, options.resplit, raw.labels)
    labels, num_classes = canonical_labels(raw.labels, n, split, options.num_classes or raw.num_classes)
    reporter.stage(f"sorting {len(raw.src):,} edges")
    if raw.weight is not None and len(raw.weight) != len(raw.src):
        raise GraphError(f"there are {len(raw.src)} edges but {len(raw.weight)} values of edge weight")
    if raw.weight is not None and np.asarray(raw.weight).dtype.kind not in "iufb":
        raise GraphError(f"edge weights must be numbers, got {np.asarray(raw.weight).dtype}")
    weight = None if raw.weight is None or options.drop_weights else np.asarray(raw.weight, np.float32)
    if weight is not None and not np.isfinite(weight).all():
        raise GraphError(f"edge {int(np.argmin(np.isfinite(weight)))} has a weight that is not finite")
    names = canonical_names(raw.type_names)
    edge_names = names.get("edges", [])
    kind = canonical_types(raw.type, len(raw.src), "edge", edge_names)
    node_type = canonical_types(raw.node_type, n, "node", names.get("nodes", ()))
    num_types = count_types(kind, edge_names)
    src, dst, raw.src, raw.dst = raw.src, raw.dst, None, None
    if options.add_reverse:
        if options.undirected:
            raise ConfigError("--undirected gives an edge and its reverse one type, --add-reverse two; choose one")
        check_endpoints(src, dst, n)        # of the edges given: those added would hide that one end is missing
        src, dst, weight, kind, edge_names = with_reverse(src, dst, weight, kind, num_types, edge_names)
        num_types *= 2
    edges, edges_out, loops = canonical_edges(
        src, dst, n, weight, kind, undirected=options.undirected, self_loops=options.self_loops,
        drop_duplicates=options.drop_duplicates, num_types=num_types)
    del src, dst
    if edge_names:
        added = count_types(edges.type) > num_types
        names = names | {"edges": [*edge_names, "self loop"] if added else edge_names}
    if features is None:
        reporter.warn("the graph has no node features; most models need them")
    if labels.ndim == 1 and not num_classes:
        reporter.warn("the graph has no labels; it cannot be trained on")
    if not np.any(split == SPLITS["train"]):
        reporter.warn("the training split is empty; training will refuse this graph (--train 0.5 makes a random split, with "
                      "--resplit in place of the input's own)")
    data = GraphData(edges, edges_out, features, labels, split, np.arange(n), np.array([0, n]), num_classes, "",
                     source=options.name or raw.source, seed=raw.seed, versions=versions(), num_self_loops=loops,
                     node_type=node_type, type_names=names)
    for text in type_warnings(data):
        reporter.warn(text)
    reporter.stage("naming the graph by its content (SHA-256)")
    data.uuid = content_uuid(data, raw.identity)
    return data


def canonical_labels(labels, n, split, num_classes=None):
    """(labels, number of classes): int64 (n,) with -1 for none, or uint8 (n, C) for several 0/1 columns."""
    if labels is None:
        return np.full(n, -1, np.int64), num_classes or 0
    labels = np.asarray(labels)
    if labels.ndim not in (1, 2) or len(labels) != n or 0 in labels.shape:
        raise GraphError(f"expected one label (or one row of labels) for each of {n} nodes, got shape {labels.shape}")
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.dtype.kind not in "iufb":
        raise GraphError(f"labels must be numbers, got {labels.dtype}")
    missing = _missing(labels)
    if labels.ndim == 2:
        return _multi_label(labels, missing, split, num_classes)
    whole = np.where(missing, -1, labels)
    # The file's reader takes so many classes at most; a column of larger numbers holds no classes.
    strange = (whole != np.rint(whole)) | (whole > MOST_LABEL) | (whole < -MOST_LABEL)
    if strange.any():
        node = int(np.argmax(strange))
        raise GraphError(f"node {node} has label {labels[node]}; expected whole numbers (classes from 0, -1 for none)")
    whole = whole.astype(np.int64)
    classes = num_classes or int(whole.max(initial=-1)) + 1
    wrong = (whole < -1) | (whole >= classes)
    if wrong.any():
        node = int(np.argmax(wrong))
        raise GraphError(f"node {node} has label {whole[node]}, outside the classes 0..{classes - 1} (-1 for none)")
    _no_label_in_split((whole < 0) & (split > 0), split)
    return whole, classes


def _missing(labels):
    """Where an array of numbers has none: NaN."""
    return np.isnan(labels) if labels.dtype.kind == "f" else np.zeros(labels.shape, bool)


def _multi_label(labels, missing, split, num_classes):
    if num_classes not in (None, labels.shape[1]):
        raise GraphError(f"the labels have {labels.shape[1]} columns but {num_classes} classes were stated")
    wrong = ((labels != 0) & (labels != 1) & ~missing).any(axis=1)
    if wrong.any():
        raise GraphError(f"node {int(np.argmax(wrong))} has a label that is neither 0 nor 1; several label columns "
                         f"mean a multi-label task of 0/1 columns")
    _no_label_in_split(missing.any(axis=1) & (split > 0), split)
    return np.where(missing, 0, labels).astype(np.uint8), labels.shape[1]


def _no_label_in_split(wrong, split):
    if wrong.any():
        node = int(np.argmax(wrong))
        name = {value: name for name, value in SPLITS.items()}[int(split[node])]
        raise GraphError(f"node {node} is in the {name} split but has no label ({np.count_nonzero(wrong)} such nodes); "
                         "take it out of the split or give it a label")


def canonical_split(split, n, fractions=None, seed=0, resplit=False, labels=None):
    """uint8 (n,) of `SPLITS` values, from masks or lists of node ids, or drawn at random by fractions of the labelled nodes.

    Raises GraphError where both are given, unless the random one is to replace the other (resplit).
    """
    result = np.zeros(n, np.uint8)
    if fractions is not None:
        present = [name for name, members in split.items() if members is not None]
        if present and not resplit:
            raise GraphError(f"the input has a split of its own ({', '.join(present)}), and a random one was asked for as well; "
                             "--resplit replaces it, and without --train, --val and --test it is kept")
        _random_split(result, fractions, seed, _labelled(labels, n))
        return result
    for name, members in split.items():
        if members is None:
            continue
        members = np.asarray(members)
        if members.dtype == bool:
            if members.shape != (n,):
                raise GraphError(f"the {name} mask has shape {members.shape}, expected ({n},)")
            members = np.flatnonzero(members)
        elif members.ndim != 1 or (len(members) and members.dtype.kind not in "iu"):
            raise GraphError(f"the {name} split must be a mask or a vector of node ids, got "
                             f"{members.dtype}{members.shape}")
        elif len(members) and (members.min() < 0 or members.max() >= n):
            raise GraphError(f"the {name} split names a node outside 0..{n - 1}")
        members = members.astype(np.int64)
        if result[members].any():
            node = int(members[np.argmax(result[members] != 0)])
            raise GraphError(f"node {node} is in two splits ({name} and another); the splits must not overlap")
        result[members] = SPLITS[name]
    return result


def _labelled(labels, n):
    """The nodes that have a label; all, where that cannot be told, for what is wrong with labels is found later."""
    labels = None if labels is None else np.asarray(labels)
    if labels is None or labels.ndim not in (1, 2) or len(labels) != n or labels.dtype.kind not in "iufb":
        return np.arange(n)
    missing = _missing(labels)
    if labels.ndim == 1 or labels.shape[1] == 1:
        missing |= labels == -1
    return np.flatnonzero(~missing.reshape(n, -1).any(axis=1))


def _random_split(result, fractions, seed, nodes):
    if min(fractions) < 0 or sum(fractions) > 1 + 1e-9:
        raise GraphError(f"the fractions of the splits must be from 0 to 1 and sum to at most 1, got {fractions}")
    order = nodes[np.random.Generator(np.random.PCG64(seed)).permutation(len(nodes))]
    stops = np.rint(np.cumsum(fractions) * len(nodes)).astype(np.int64)
    for value, start, stop in zip(SPLITS.values(), (0, *stops), stops):
        result[order[start:stop]] = value


def content_uuid(data, identity=None):
    """A UUID from the SHA-256 of the graph's content in original order: the same input has the same name everywhere.

    data: `GraphData` in original order. identity: bytes to hash in place of the features.
    """
    digest = hashlib.sha256()

    def add(name, array):
        digest.update(f"{name}:{np.dtype(array.dtype).str}:{tuple(array.shape)};".encode())
        for slab in slabs(array):
            digest.update(np.ascontiguousarray(slab).data)

    for name in ("indptr", "indices", "weight", "type"):
        if getattr(data.edges, name) is not None:
            add(name, getattr(data.edges, name))
    if identity is not None:
        digest.update(identity)
    elif isinstance(data.features, Csr):
        for name in ("indptr", "indices", "data"):
            add(f"features_{name}", getattr(data.features, name))
    elif data.features is not None:
        add("features", data.features)
    add("labels", data.labels)
    add("split", data.split)
    if data.node_type is not None:
        add("node_type", data.node_type)
    return str(uuid.UUID(bytes=digest.digest()[:16], version=5))


def versions(**others):
    """Versions of what wrote a file, for its root attribute."""
    return {"hpcgnn": hpcgnn.__version__, "numpy": np.__version__, "h5py": metadata.version("h5py"), **others}
