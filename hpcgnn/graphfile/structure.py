"""Checks once, before any data is read, that a graph file's datasets have the shapes and types promised by its
attributes.

The check reads descriptions only. Together with the range checks of `graph/load.py`, it protects against any file. No
index out of range reaches a kernel, and no array is allocated that the file cannot fill.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcgnn.errors import FormatError, GraphError
from hpcgnn.graphfile.given_links import given_shapes
from hpcgnn.graphfile.labels import LABELS
from hpcgnn.graphfile.own_ids import NUMBERS, OFFSETS, TEXT
from hpcgnn.graphfile.scales import SCALES

if TYPE_CHECKING:
    from hpcgnn.graphfile.storage import GraphFile


# More would not fit an index or a machine; a corrupted or hostile attribute can say anything.
_MOST_ROWS, _MOST_COLUMNS = 1 << 48, (1 << 31) - 1
_WHOLE, _REAL, _NUMBERS = "iu", "f", "fi"
# Filters that are part of every HDF5 (deflate, shuffle, Fletcher32), and how many times larger than stored the data may
# be.
_FILTERS = {1: 1100, 2: 1, 3: 1}
_NAMES = {_WHOLE: "integers", _REAL: "floating-point numbers", _NUMBERS: "numbers"}


def check_structure(file: "GraphFile") -> None:
    """FormatError naming the first dataset of an open GraphFile that is missing or not as it should be; GraphError for
    a graph without nodes."""
    meta = file.meta
    for name in ("num_nodes", "num_edges", "num_clusters"):
        _within(file, name, getattr(meta, name), _MOST_ROWS)
    for name in ("num_classes", "num_features", "num_edge_types", "num_node_types", "num_edge_features"):
        _within(file, name, getattr(meta, name), _MOST_COLUMNS)
    labels = meta.num_label_parts
    if (
        not 0 <= labels < meta.num_feature_parts
        or min(meta.part_widths) < 0
        or sum(meta.part_widths) != meta.num_features
    ):
        raise FormatError(
            f"{file.path}: root attribute num_feature_parts is {meta.num_feature_parts}, expected a divisor of the "
            f"{meta.num_features} columns of features (without {labels} hops of {meta.num_classes} classes); the file "
            "is corrupted"
        )
    if meta.num_nodes == 0:
        raise GraphError(f"{file.path} has no nodes; expected a graph with at least one")
    for name, (shape, kind) in expected_datasets(file).items():
        found = file.shape(name)
        if found != shape:
            raise FormatError(
                f"{file.path}: {name} has shape {found}, but the file's attributes say {shape}; it is corrupted or "
                "incomplete, import the graph again"
            )
        if file.dtype(name).kind not in kind:
            raise FormatError(
                f"{file.path}: {name} has type {file.dtype(name)}, expected {_NAMES[kind]}; import the graph again"
            )


def check_dataset(path: str | Path, file_bytes: int, name: str, dataset: Any) -> None:
    """FormatError for an h5py dataset with a filter that HDF5 would load foreign code for, or larger than the file can
    hold.
    """
    described = dataset.id.get_create_plist()
    filters = {described.get_filter(index)[0] for index in range(described.get_nfilters())}
    foreign = filters - _FILTERS.keys()
    if foreign:
        raise FormatError(
            f"{path}: {name} is packed with HDF5 filter {min(foreign)}, which needs a plugin; that is refused, "
            "repack the file (h5repack -f GZIP=4)"
        )
    growth = max((_FILTERS[each] for each in filters), default=1)
    if dataset.size * dataset.id.get_type().get_size() > growth * file_bytes:
        raise FormatError(
            f"{path}: {name} claims shape {dataset.shape}, more than a file of {file_bytes} bytes can hold; it is "
            "corrupted or incomplete"
        )


def _within(file: "GraphFile", name: str, value: int, most: int) -> None:
    if not 0 <= value <= most:
        raise FormatError(f"{file.path}: root attribute {name} is {value}, expected 0..{most}; the file is corrupted")


def expected_datasets(file: "GraphFile") -> dict[str, tuple[tuple[int, ...], str]]:
    """{dataset: (shape, kinds of its type)}."""
    meta = file.meta
    nodes, edges = meta.num_nodes, meta.num_edges
    wanted: dict[str, tuple[tuple[int, ...], str]] = {}
    for suffix in ("",) if meta.undirected else ("", "_out"):
        wanted[f"topology{suffix}/indptr"] = (nodes + 1,), _WHOLE
        wanted[f"topology{suffix}/indices"] = (edges,), _WHOLE
        if meta.weighted:
            wanted[f"edges{suffix}/weight"] = (edges,), _REAL
        if meta.typed:
            wanted[f"edges{suffix}/type"] = (edges,), _WHOLE
    if meta.num_edge_features:
        wanted["edges/features"] = (edges, meta.num_edge_features), _REAL
    if meta.sparse_features:
        entries = file.shape("nodes/features_csr/indices")[:1]
        wanted["nodes/features_csr/indptr"] = (nodes + 1,), _WHOLE
        wanted["nodes/features_csr/indices"] = entries, _WHOLE
        wanted["nodes/features_csr/data"] = entries, _REAL
    elif meta.num_features or "nodes/features" in file:
        wanted["nodes/features"] = (nodes, meta.num_features), _NUMBERS
        if SCALES in file:
            wanted[SCALES] = (meta.num_features,), _REAL
    labels = LABELS[meta.task]
    wanted["nodes/labels"] = labels.shape(nodes, meta.num_classes), labels.storage
    wanted["nodes/split"] = wanted["nodes/original_id"] = (nodes,), _WHOLE
    if meta.num_node_types:
        wanted["nodes/type"] = (nodes,), _WHOLE
    if NUMBERS in file:
        wanted[NUMBERS] = (nodes,), _WHOLE
    if OFFSETS in file:
        wanted[OFFSETS], wanted[TEXT] = ((nodes + 1,), _WHOLE), (file.shape(TEXT), _WHOLE)
    wanted |= {name: (shape, _WHOLE) for name, shape in given_shapes(file).items()}
    wanted["clusters/offsets"] = (meta.num_clusters + 1,), _WHOLE
    return wanted
