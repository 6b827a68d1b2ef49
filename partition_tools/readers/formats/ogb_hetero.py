"""OGB's raw layout of a heterogeneous graph, ogbn-mag (Hu et al., NeurIPS 2020): nodes and edges of several types.

In raw/, all text:

* num-node-dict.csv.gz (headings: the node types; one row: their numbers of nodes)
* triplet-type-list.csv.gz (lines `head,relation,tail`)
* relations/HEAD___RELATION___TAIL/edge.csv.gz (ids within the types of head and tail)
* node-feat/TYPE/node-feat.csv.gz and node-label/TYPE/node-label.csv.gz, for some types
* nodetype-has-label.csv.gz

In split/NAME/: nodetype-has-split.csv.gz and TYPE/{train,valid,test}.csv.gz.

It becomes one graph with numbered types, as other libraries' graphs do (`joined_types`). Types and relations are in the
order of their files. Features of edges and other tables (node_year, edge_reltype) are not read; a warning names them.
"""

from pathlib import Path

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.graph.raw import RawGraph
from partition_tools.readers.arrays.joined_types import SEPARATOR, Relation, joined
from partition_tools.readers.arrays.named_arrays import ArrayOptions, graph_of, in_memory
from partition_tools.readers.formats.ogb_files import (
    columns,
    edge_columns,
    rows,
    say_unread,
    split_folder,
    split_ids,
)
from partition_tools.workspace.scratch import Scratch

_READ = (
    "num-node-dict",
    "triplet-type-list",
    "relations",
    "node-feat",
    "node-label",
    "nodetype-has-feat",
    "nodetype-has-label",
)


def read(path: Path, scratch: Scratch) -> RawGraph:
    """The `RawGraph` of the folder that holds raw/ and split/. Raises FormatError naming the file that is wrong."""
    raw = path / "raw"
    say_unread(raw, (file.name.removesuffix(".csv.gz") for file in raw.iterdir()), _READ, scratch.reporter)
    counts = _counts(raw / "num-node-dict.csv.gz")
    relations = _relations(raw / "triplet-type-list.csv.gz", counts)
    scratch.reporter.stage(f"reading {len(relations)} relations")
    files = {each: raw / "relations" / SEPARATOR.join(each) / "edge.csv.gz" for each in relations}
    edges = {relation: {"edge_index": edge_columns(file, scratch)} for relation, file in files.items()}
    scratch.reporter.stage("reading features and labels")
    tables = {
        "x": _tables(raw, "node-feat", counts, scratch),
        "y": _tables(raw, "node-label", counts, scratch),
        **_split(split_folder(path), counts),
    }
    nodes = {
        kind: {"num_nodes": count} | {name: found[kind] for name, found in tables.items() if kind in found}
        for kind, count in counts.items()
    }
    arrays = joined(str(raw), nodes, edges, scratch.reporter, scratch, np.float32)
    graph = graph_of(str(path), in_memory(arrays), ArrayOptions(), scratch.reporter)
    graph.source = path.name
    return graph


def _counts(file: Path) -> dict[str, int]:
    """{node type: number of nodes} in the order of the file."""
    found = columns(file, heading=True)
    if not all(values.shape == (1,) and values.dtype.kind in "iu" and values[0] >= 0 for values in found.values()):
        raise FormatError(
            f"{file} must have a heading of node types and one row of how many nodes each has (one graph)"
        )
    return {name: int(values[0]) for name, values in found.items()}


def _relations(file: Path, counts: dict[str, int]) -> list[Relation]:
    """[(head, relation, tail)] in the order of the file."""
    found = columns(file)
    if len(found) != 3:
        raise FormatError(f"{file} must have the columns head, relation, tail and at least one line")
    relations = [(str(head), str(name), str(tail)) for head, name, tail in zip(*found.values(), strict=True)]
    for relation in relations:
        unknown = [name for name in relation[::2] if name not in counts]
        if unknown:
            raise FormatError(
                f"{file} names the node type {unknown[0]!r}; num-node-dict.csv.gz has {', '.join(counts)}"
            )
    if len(set(relations)) < len(relations):
        raise FormatError(f"{file} names a relation twice")
    return relations


def _tables(raw: Path, folder: str, counts: dict[str, int], scratch: Scratch) -> dict[str, np.ndarray]:
    """{node type: numbers with one row per node} of raw/FOLDER/TYPE/FOLDER.csv.gz, as far as they are there."""
    found: dict[str, np.ndarray] = {}
    for kind in counts:
        file = raw / folder / kind / f"{folder}.csv.gz"
        values = rows(file, scratch)
        if values is not None:
            if len(values) != counts[kind]:
                raise FormatError(f"{file} has {len(values)} rows, expected {counts[kind]} (nodes of type {kind})")
            found |= {kind: values} if len(values) else {}
    return found


def _split(folder: Path | None, counts: dict[str, int]) -> dict[str, dict[str, np.ndarray]]:
    """{"train_idx", "val_idx", "test_idx": {node type: ids within it}}."""
    if folder is None:
        return {}
    kinds = [kind for kind in counts if (folder / kind).is_dir()]
    split: dict[str, dict[str, np.ndarray]] = {}
    for kind in kinds:
        for name, ids in split_ids(folder / kind).items():
            split.setdefault(f"{name}_idx", {})[kind] = ids
    return split
