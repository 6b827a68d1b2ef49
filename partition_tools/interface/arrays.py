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
from partition_tools.canonical.features import check_turned
from partition_tools.cli.partition_graph import partition_graph
from partition_tools.graph.counts import largest, warn_of_gaps
from partition_tools.graph.raw import RawGraph
from partition_tools.graph.writing import write_with_bar
from partition_tools.readers.arrays.in_memory import (
    as_array,
    as_links,
    as_rows,
    as_split,
    by_node,
    mapped_files,
    places,
    plain_ids,
)
from partition_tools.readers.tables.node_tables import column_names, label_numbers
from partition_tools.workspace.budget import memory_budget
from partition_tools.workspace.claim import claimed
from partition_tools.workspace.progress import Reporter, ScriptReporter
from partition_tools.workspace.scratch import Scratch
from partition_tools.workspace.working import scratch_directory

RENUMBER = "say num_nodes=N if they are meant, or give the ids of the nodes as node_ids"


@dataclass(frozen=True)
class Saving(ImportOptions):
    """Options of writing a graph: the options of `import` by their names, and these.

    Attributes:
        fractions: (train, val) or (train, val, test) of a random split of the labelled nodes.
        ranks: numbers of ranks to partition the graph for, or none.
        force: replace an existing file.
        memory: bytes to work in (None: half of the free memory).
        reporter: gets stages and warnings (without one, warnings are Python's).

    Raises:
        ConfigError: an unknown value.
    """

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
        if self.resplit and self.fractions is None:
            raise ConfigError("resplit needs the fractions of the new split")
        super().__post_init__()


def save_graph(  # noqa: PLR0913 - callers name them
    path: str | Path,
    edge_index: Any,
    features: Any = None,
    labels: Any = None,
    split: Any = None,
    *,
    edge_weight: Any = None,
    edge_features: Any = None,
    edge_type: Any = None,
    node_type: Any = None,
    node_ids: Any = None,
    num_nodes: int | None = None,
    edge_type_names: Sequence[str] = (),
    node_type_names: Sequence[str] = (),
    class_names: Sequence[str] = (),
    links: Mapping[str, Any] | None = None,
    **saving: Any,
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
        edge_weight, edge_type: (E,); types are numbers from 0, or words, which become names in their sorted order.
        edge_features: numbers (E, F_e) or (E,). An edge added by undirected=True has the features of its reverse.
        node_type: (n,), as edge_type.
        node_ids: (n,), the numbers or words of nodes in edge_index, in the order of the rows. The file keeps them, and
            results have them (docs/results.md).
        num_nodes: n, if neither features nor labels have n rows.
        links: {'val': …, 'test': …} of held-out edges for `--task links`, none of them in edge_index. Each is pairs
            (m, 2) or a mapping with OGB's names: edge (m, 2), with edge_neg (k, 2) as negatives of all edges; or
            source_node (m,), target_node (m,) and target_node_neg (m, N).
        saving: fields of `Saving`, such as undirected=True, fractions=(0.6, 0.2), ranks=4, force=True.

    Raises:
        GraphError, FormatError, ConfigError: a graph that is not sound, unfit arrays, unfit options. No file changes.
    """
    how = saving_of(saving)
    ends = as_array(edge_index, "edge_index")
    if ends.ndim != 2 or ends.shape[0] != 2:
        turn = "; turn it: edge_index.T" if ends.ndim == 2 and ends.shape[1] == 2 else ""
        raise FormatError(f"edge_index must have shape (2, E), got {tuple(ends.shape)}{turn}")
    src, dst = ends
    held = as_links(links)
    ids = None if node_ids is None else as_array(node_ids, "node_ids")
    given = {"features": features, "labels": labels, "node_type": node_type}
    given = {name: by_node(values, name, ids) for name, values in given.items()}
    per_node: dict[str, Any] = {"features": as_rows(given["features"])}
    for name in ("labels", "node_type"):
        per_node[name] = None if given[name] is None else as_array(given[name], name)
    own_ids: np.ndarray | None = None
    if ids is not None:
        held = {
            split: {part: places(array, ids, f"{split}_{part}") for part, array in parts.items()}
            for split, parts in held.items()
        }
        src, dst = places(ends, ids, "edge_index")
        if num_nodes not in (None, len(ids)):
            raise GraphError(f"there are {len(ids)} node_ids, but num_nodes={num_nodes}")
        num_nodes, own_ids = len(ids), plain_ids(ids)
    if num_nodes is None:
        num_nodes = _count(src, dst, per_node, how.reporter)
    values: np.ndarray | None = None
    words: list[str] = []
    if per_node["labels"] is not None:
        values, words = label_numbers(per_node["labels"], "labels")
    if words and class_names:
        raise FormatError("class_names are for labels that are numbers, and these are words; leave class_names out")
    classes = words or (class_names if len(class_names) else column_names(getattr(labels, "columns", ())))
    names = {"nodes": node_type_names, "edges": edge_type_names, "classes": classes}
    raw = RawGraph(
        src=src,
        dst=dst,
        num_nodes=num_nodes,
        features=per_node["features"],
        labels=values,
        split=as_split(split, ids),
        num_classes=None,
        weight=None if edge_weight is None else as_array(edge_weight, "edge_weight"),
        type=None if edge_type is None else as_array(edge_type, "edge_type"),
        source=Path(path).stem,
        node_type=per_node["node_type"],
        type_names={what: list(given) for what, given in names.items() if len(given)},
        ids=own_ids,
        edge_features=None if edge_features is None else as_array(edge_features, "edge_features"),
        links=held,
    )
    return write_raw(path, raw, how)


def saving_of(given: Mapping[str, Any]) -> Saving:
    """The `Saving` of fields that a caller gave. Raises ConfigError."""
    known = Saving.__dataclass_fields__
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ConfigError(f"unknown argument {unknown[0]!r}; expected of: {', '.join(known)}")
    return Saving(**{name: value for name, value in given.items() if name != "reporter" or value is not None})


def write_raw(path: str | Path, raw: RawGraph, how: Saving) -> GraphData:
    """Write a `RawGraph` of arrays in memory as a graph file, and partition it for the given numbers of ranks."""
    counts = None if how.ranks is None else rank_counts(how.ranks)
    if counts is not None and counts[-1] > raw.num_nodes:
        raise GraphError(f"{counts[-1]} ranks are more than the {raw.num_nodes} nodes of the graph; use fewer ranks")
    check_outputs({"": path}, mapped_files(vars(raw).values()), how.force)
    with claimed(path), claimed(scratch_directory(path, None)):
        # No other call has the same arrays, so that nothing of the directory is of use to one that goes on.
        scratch = Scratch(
            scratch_directory(path, None), ["arrays in memory", id(raw)], memory_budget(how.memory), how.reporter
        )
        try:
            data = canonical(raw, how, scratch)
            write_with_bar(path, data, reporter=how.reporter)
        finally:
            scratch.remove()
    if counts is not None:
        partition_graph(path, counts, reporter=how.reporter, memory=how.memory)
    return data


def partition(
    path: str | Path, ranks: int | Iterable[int], *, clusters: int | None = None, **options: Any
) -> dict[int, dict[str, Any]]:
    """Cluster a graph file, once, and store in it a map of the clusters for each number of ranks.

    clusters: their number (None: by the size of the graph). options: of `partition_graph`, such as method, balance,
    seed, output. Returns {ranks: measures of the map: imbalance, cut, halo rows}. One process calls it. Raises
    ConfigError or GraphError.
    """
    return partition_graph(path, rank_counts(ranks), num_clusters=clusters, **options)


def rank_counts(ranks: int | Iterable[int]) -> list[int]:
    """Sorted distinct numbers of ranks. Raises ConfigError."""
    counts = [ranks] if isinstance(ranks, int) else list(ranks)
    if not counts or not all(isinstance(count, (int, np.integer)) and count > 0 for count in counts):
        raise ConfigError(f"ranks must be a number of ranks from 1, or several such as [1, 2, 4], got {ranks!r}")
    return sorted({int(count) for count in counts})


def _count(src: np.ndarray, dst: np.ndarray, per_node: Mapping[str, Any], reporter: Reporter) -> int:
    """As many nodes as the first array of nodes that is there has rows, or one more than the largest id."""
    labels = per_node["labels"]
    check_turned(per_node.get("features"), (labels, per_node.get("node_type")))
    if labels is not None and labels.ndim == 2 and len(labels) == 1 < labels.shape[1] and largest(src, dst) > 0:
        raise FormatError(f"expected one label for each node, got labels of shape {labels.shape}; turn them: labels.T")
    for values in per_node.values():
        if values is not None and not isinstance(values, Csr) and values.ndim == 0:
            raise FormatError("features, labels and node_type have a value for each node, got a single value")
        if values is not None:
            return len(values.indptr) - 1 if isinstance(values, Csr) else len(values)
    if src.dtype.kind not in "iu":
        raise FormatError(f"edge_index must hold integers, got {src.dtype}; ids that are words need node_ids")
    warn_of_gaps((src, dst), largest(src, dst) + 1, RENUMBER, reporter)
    return largest(src, dst) + 1
