"""Graph files from arrays that a program has in memory: `partition_tools.save_graph`.

The sub-command `import` has the same checks, messages and writing. An array here stands for a table or a member of an
archive there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hpcgnn.errors import ConfigError, FormatError, GraphError
from hpcgnn.graphfile.schema import Csr, GraphData
from hpcgnn.output_files import check_outputs
from partition_tools.canonical.canonical import ImportOptions, canonical
from partition_tools.cli.partition_graph import PartitionOptions, partition_graph, rank_counts
from partition_tools.graph.raw import RawGraph
from partition_tools.graph.writing import write_with_bar
from partition_tools.readers.arrays.in_memory import as_array, as_links, as_rows, as_split, places, plain_ids
from partition_tools.readers.arrays.named_arrays import ArrayOptions, graph_of, in_memory
from partition_tools.readers.tables.node_tables import column_names
from partition_tools.workspace.claim import claimed
from partition_tools.workspace.progress import Reporter, ScriptReporter
from partition_tools.workspace.working import Resources, working


@dataclass(frozen=True)
class Saving(ImportOptions):
    """Options of writing a graph: the options of `import` by their names, further arrays of the graph, and these.

    Attributes:
        edge_weight, edge_type: (E,); types are numbers from 0, or words, which become names in their sorted order.
        edge_features: numbers (E, F_e) or (E,). An edge added by undirected=True has the features of its reverse.
        node_type: (n,), as edge_type.
        node_ids: (n,), the numbers or words of nodes in edge_index, in the order of the rows. The file keeps them, and
            results have them (docs/results.md).
        num_nodes: n, if neither features nor labels have n rows.
        edge_type_names, node_type_names, class_names: names of the numbers.
        links: {'val': …, 'test': …} of held-out edges for `--task links`, none of them in edge_index. Each is pairs
            (m, 2) or a mapping with OGB's names: edge (m, 2), with edge_neg (k, 2) as negatives of all edges; or
            source_node (m,), target_node (m,) and target_node_neg (m, N).
        fractions: (train, val) or (train, val, test) of a random split of the labelled nodes.
        ranks: numbers of ranks to partition the graph for, or none.
        force: replace an existing file.
        memory: bytes to work in (None: half of the free memory).
        reporter: gets stages and warnings (without one, warnings are Python's).

    Raises:
        ConfigError: an unknown value.
    """

    edge_weight: Any = None
    edge_features: Any = None
    edge_type: Any = None
    node_type: Any = None
    node_ids: Any = None
    num_nodes: int | None = None
    edge_type_names: Sequence[str] = ()
    node_type_names: Sequence[str] = ()
    class_names: Sequence[str] = ()
    links: Mapping[str, Any] | None = None
    ranks: int | Iterable[int] | None = None
    force: bool = False
    memory: int | None = None
    reporter: Reporter = field(default_factory=ScriptReporter)

    def __post_init__(self) -> None:
        if self.fractions is not None:
            if len(self.fractions) not in (2, 3):
                raise ConfigError(f"fractions must be (train, val) or (train, val, test), got {self.fractions}")
            if len(self.fractions) == 2:
                object.__setattr__(self, "fractions", (*self.fractions, 1 - sum(self.fractions)))
        super().__post_init__()


def save_graph(
    path: str | Path, edge_index: Any, features: Any = None, labels: Any = None, split: Any = None, **saving: Any
) -> GraphData:
    """Write a graph in memory as a graph file, and with ranks=[1, 2, 4] partition it. Returns its `GraphData`.

    One process calls it, and it needs neither MPI nor torch. All arrays may be numpy's, torch's, or lists.

    Args:
        edge_index: int (2, E), row 0 the sources, row 1 the destinations; a node aggregates over its in-edges.
        features: (n, F), or a sparse matrix of SciPy, which stays sparse.
        labels: (n,) of classes from 0 (-1 or NaN: none) or words, (n, C) of 0/1 for a multi-label task, or with
            task='regression' (n,) or (n, T) of real numbers (NaN: unknown). A DataFrame names its columns; class_names
            names those of an array.
        split: {'train': …, 'val': …, 'test': …} of masks bool (n,) or node numbers, or one word for each node.
        saving: fields of `Saving`, such as edge_weight, node_ids, undirected=True, fractions=(0.6, 0.2), ranks=4.

    Raises:
        GraphError, FormatError, ConfigError: a graph that is not sound, unfit arrays, unfit options. No file changes.
    """
    how = saving_of(saving)
    ends, ids, rows = as_array(edge_index, "edge_index"), _given(how.node_ids, "node_ids"), as_rows(features)
    held, num_nodes = as_links(how.links), how.num_nodes
    if ids is not None:
        held = {
            split: {part: places(array, ids, f"{split}_{part}") for part, array in parts.items()}
            for split, parts in held.items()
        }
        ends = places(ends, ids, "edge_index")
        if num_nodes not in (None, len(ids)):
            raise GraphError(f"there are {len(ids)} node_ids, but num_nodes={num_nodes}")
        num_nodes = len(ids)
    elif ends.dtype.kind not in "iu":
        raise FormatError(f"edge_index must hold integers, got {ends.dtype}; ids that are words need node_ids")
    given = {
        "edge_index": ends,
        "x": rows,
        "y": _given(labels, "labels"),
        "edge_weight": how.edge_weight,
        "edge_type": how.edge_type,
        "edge_attr": _given(how.edge_features, "edge_features"),
        "node_type": how.node_type,
        "num_nodes": num_nodes,
        "node_type_names": list(how.node_type_names) or None,
        "edge_type_names": list(how.edge_type_names) or None,
        "class_names": list(how.class_names) or column_names(getattr(labels, "columns", ())) or None,
    }
    if isinstance(rows, Csr):
        shape = len(rows.indptr) - 1, rows.num_columns
        given |= {"x": None, "x_indptr": rows.indptr, "x_indices": rows.indices, "x_data": rows.data, "x_shape": shape}
    arrays = in_memory({name: value for name, value in given.items() if value is not None})
    raw = graph_of("save_graph", arrays, ArrayOptions(), how.reporter)
    raw.source, raw.split, raw.links = Path(path).stem, as_split(split, ids), held
    raw.ids = None if ids is None else plain_ids(ids)
    return write_raw(path, raw, how)


def _given(values: Any, what: str) -> np.ndarray | None:
    return None if values is None else as_array(values, what)


def saving_of(given: Mapping[str, Any]) -> Saving:
    """The `Saving` of fields that a caller gave. Raises ConfigError."""
    known = Saving.__dataclass_fields__
    if unknown := [name for name in given if name not in known]:
        raise ConfigError(f"unknown argument {unknown[0]!r}; expected of: {', '.join(known)}")
    return Saving(**{name: value for name, value in given.items() if name != "reporter" or value is not None})


def write_raw(path: str | Path, raw: RawGraph, how: Saving) -> GraphData:
    """Write a `RawGraph` of arrays in memory as a graph file, and partition it for the given numbers of ranks."""
    counts = None if how.ranks is None else rank_counts(how.ranks)
    if counts is not None and counts[-1] > raw.num_nodes:
        raise GraphError(f"{counts[-1]} ranks are more than the {raw.num_nodes} nodes of the graph; use fewer ranks")
    check_outputs({"": path}, force=how.force)
    resources = Resources(how.memory, None, how.reporter)
    with claimed(path), working(path, resources) as scratch:
        data = canonical(raw, how, scratch)
        write_with_bar(path, data, reporter=how.reporter)
    if counts is not None:
        partition_graph(path, counts, options=PartitionOptions(resources=resources))
    return data


def partition(
    path: str | Path, ranks: int | Iterable[int], *, clusters: int | None = None, **options: Any
) -> dict[int, dict[str, Any]]:
    """Cluster a graph file, once, and store in it a map of the clusters for each number of ranks.

    clusters: their number (None: by the size of the graph). options: arguments of `partition_graph` (method, name,
    output) and fields of `PartitionOptions` (balance, seed). Returns {ranks: measures of the map: imbalance,
    cut, halo rows}. One process calls it. Raises ConfigError or GraphError.
    """
    own = {name: options.pop(name) for name in ("method", "name", "output") if name in options}
    if unknown := [name for name in options if name not in PartitionOptions.__dataclass_fields__]:
        raise ConfigError(f"unknown argument {unknown[0]!r} of partition")
    return partition_graph(path, rank_counts(ranks), num_clusters=clusters, options=PartitionOptions(**options), **own)
