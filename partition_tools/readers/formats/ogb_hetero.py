"""OGB's raw layout of a heterogeneous graph, ogbn-mag (Hu et al., NeurIPS 2020): nodes and edges of several types.

In raw/, all text:

* num-node-dict.csv.gz (headings: the node types; one row: their numbers of nodes)
* triplet-type-list.csv.gz (lines `head,relation,tail`)
* relations/HEAD___RELATION___TAIL/edge.csv.gz (ids within the types of head and tail)
* node-feat/TYPE/node-feat.csv.gz and node-label/TYPE/node-label.csv.gz, for some types
* nodetype-has-label.csv.gz

In split/NAME/: nodetype-has-split.csv.gz and TYPE/{train,valid,test}.csv.gz.

Here such a graph becomes one with numbered types. Types of nodes follow one another in the order of their file. A
node's id is the number of nodes of earlier types plus its id in its type. Relations are numbered in the order of their
file. Features of types are joined as in other libraries' graphs (`joined_types`). Features of edges and other tables
(node_year, edge_reltype) are not read; a warning names them.
"""

import functools
import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hpcgnn.errors import FormatError
from hpcgnn.graphfile.storage import SLAB_ROWS
from partition_tools.canonical.rows import slabs
from partition_tools.graph.counts import blocks
from partition_tools.graph.raw import RawGraph
from partition_tools.readers.arrays.joined_types import SEPARATOR, say_widths
from partition_tools.readers.formats.ogb_files import (
    SPLITS,
    edge_columns,
    rows,
    say_unread,
    split_folder,
    split_ids,
    table,
)
from partition_tools.readers.tables.headings import ENDS
from partition_tools.readers.tables.tables import read_frame
from partition_tools.workspace.progress import Reporter
from partition_tools.workspace.scratch import Scratch
from partition_tools.workspace.scratch_arrays import filled

_READ = (
    "num-node-dict",
    "triplet-type-list",
    "relations",
    "node-feat",
    "node-label",
    "nodetype-has-feat",
    "nodetype-has-label",
)


def read(path: Path, reporter: Reporter, scratch: Scratch, split: str | None = None) -> RawGraph:
    """The `RawGraph` of the folder that holds raw/ and split/. Raises FormatError naming the file that is wrong."""
    raw = path / "raw"
    say_unread(raw, (file.name.removesuffix(".csv.gz") for file in raw.iterdir()), _READ, reporter)
    counts = _counts(raw / "num-node-dict.csv.gz")
    names = list(counts)
    starts = _starts(counts)
    relations = _relations(raw / "triplet-type-list.csv.gz", counts)
    reporter.stage(f"reading {len(relations)} relations")
    files = [raw / "relations" / SEPARATOR.join(relation) / "edge.csv.gz" for relation in relations]
    edges = [_edges(file, scratch, reporter) for file in files]
    lengths = [len(ends[0]) for ends in edges]
    places = np.cumsum([0, *lengths]).tolist()
    src, dst = (
        filled(scratch, f"source/{end}", (places[-1],), np.int64, _joined(edges, relations, files, column, counts))
        for column, end in enumerate(ENDS)
    )
    types = filled(scratch, "source/type", (places[-1],), np.int32, functools.partial(_numbered, places=places))
    del edges
    reporter.stage("reading features and labels")
    n = sum(counts.values())
    return RawGraph(
        src=src,
        dst=dst,
        num_nodes=n,
        features=_features(raw, counts, starts, reporter, scratch),
        labels=_labels(raw, counts, starts, reporter, scratch),
        split=_split(split_folder(path, split), counts),
        type=types,
        source=path.name,
        node_type=np.repeat(np.arange(len(names), dtype=np.int32), list(counts.values())),
        type_names={"nodes": names, "edges": [SEPARATOR.join(relation) for relation in relations]},
    )


def _counts(file: Path) -> dict[str, int]:
    """{node type: number of nodes} in the order of the file."""
    frame = read_frame(file, header=True)
    values = frame.to_numpy()
    if values.shape[0] != 1 or values.dtype.kind not in "iu" or values.min() < 0:
        raise FormatError(
            f"{file} must have a heading of node types and one row of how many nodes each has (one "
            f"graph), got {values.shape[0]} rows of {values.dtype}"
        )
    return dict(zip((str(name).strip() for name in frame.columns), values[0].tolist(), strict=True))


def _relations(file: Path, counts: dict[str, int]) -> list[tuple[str, ...]]:
    """[(head, relation, tail)] in the order of the file."""
    values = read_frame(file, header=False).to_numpy()
    if values.size == 0 or values.shape[1] != 3:
        raise FormatError(f"{file} must have the columns head, relation, tail and at least one line")
    relations = [tuple(str(word).strip() for word in row) for row in values]
    for relation in relations:
        unknown = [name for name in relation[::2] if name not in counts]
        if unknown:
            raise FormatError(
                f"{file} names the node type {unknown[0]!r}; num-node-dict.csv.gz has {', '.join(counts)}"
            )
    if len(set(relations)) < len(relations):
        raise FormatError(f"{file} names a relation twice")
    return relations


def _edges(file: Path, scratch: Scratch, reporter: Reporter) -> tuple[np.ndarray, np.ndarray]:
    """(sources, destinations) of a relation, in ids of their types."""
    edges, stated = edge_columns(file, scratch, reporter), table(file.with_name("num-edge-list.csv.gz"))
    if stated is not None and stated.sum() != len(edges[0]):
        raise FormatError(
            f"{file.parent} has {len(edges[0])} edges but num-edge-list.csv.gz states {int(stated.sum())}; "
            "unpack the data set again"
        )
    return edges


def _joined(
    edges: list[tuple[np.ndarray, np.ndarray]],
    relations: list[tuple[str, ...]],
    files: list[Path],
    column: int,
    counts: dict[str, int],
) -> Callable[[np.ndarray], None]:
    """A function that fills an array with one end (column 0 or 1) of all edges, in ids of the whole graph."""

    def fill(into: np.ndarray) -> None:
        place = 0
        for ends, relation, file in zip(edges, relations, files, strict=True):
            first = 0
            for block in blocks(ends[column]):
                into[place : place + len(block)] = _shifted(block, relation[2 * column], counts, file, first)
                place, first = place + len(block), first + len(block)

    return fill


def _numbered(into: np.ndarray, places: list[int]) -> None:
    """The number of the relation that each edge is of. places: where its edges begin, and the end."""
    for number, (start, stop) in enumerate(itertools.pairwise(places)):
        into[start:stop] = number


def _shifted(ids: np.ndarray, kind: str, counts: dict[str, int], file: Path, first: int = 0) -> np.ndarray:
    """Ids within a node type as ids of the whole graph; one outside its type would be a node of another type.

    first: how many lines of the file come before these.
    """
    wrong = (ids < 0) | (ids >= counts[kind])
    if wrong.any():
        line = int(np.argmax(wrong))
        raise FormatError(f"{file}: line {first + line + 1} names {kind} {ids[line]}, outside 0..{counts[kind] - 1}")
    return ids.astype(np.int64) + _starts(counts)[kind]


def _starts(counts: dict[str, int]) -> dict[str, int]:
    """{node type: the first id of its nodes}."""
    return dict(zip(counts, np.cumsum([0, *counts.values()])[:-1].tolist(), strict=True))


def _tables(
    raw: Path, folder: str, counts: dict[str, int], scratch: Scratch, reporter: Reporter
) -> dict[str, np.ndarray]:
    """{node type: numbers with one row per node} of raw/FOLDER/TYPE/FOLDER.csv.gz, as far as they are there."""
    found = {}
    flags = _flags(raw / f"nodetype-has-{folder.removeprefix('node-')}.csv.gz", counts)
    for kind in counts:
        file = raw / folder / kind / f"{folder}.csv.gz"
        values = rows(file, scratch, reporter)
        if values is None and flags.get(kind):
            raise FormatError(f"there is no {file}, although {kind} is said to have it; unpack the data set again")
        if values is not None:
            if len(values) != counts[kind]:
                raise FormatError(f"{file} has {len(values)} rows, expected {counts[kind]} (nodes of type {kind})")
            found[kind] = values
    return found


def _flags(file: Path, counts: dict[str, int]) -> dict[str, bool]:
    """{node type: whether it has something} of a table with a heading of types; {} without the table."""
    if not file.is_file():
        return {}
    frame = read_frame(file, header=True)
    values = frame.to_numpy()
    names = [str(name).strip() for name in frame.columns]
    if values.shape[0] != 1 or values.dtype.kind not in "biu" or set(names) - set(counts):
        raise FormatError(
            f"{file} must have a heading of node types ({', '.join(counts)}) and one row of True or False"
        )
    return dict(zip(names, values[0].tolist(), strict=True))


def _features(
    raw: Path, counts: dict[str, int], starts: dict[str, int], reporter: Reporter, scratch: Scratch
) -> np.ndarray | None:
    tables = _tables(raw, "node-feat", counts, scratch, reporter)
    if not tables:
        return None
    widths = {kind: values.shape[1] for kind, values in tables.items() if counts[kind]}

    def fill(into: np.ndarray) -> None:
        for kind, width in widths.items():
            values = tables.pop(kind)
            for place, slab in zip(
                range(starts[kind], starts[kind] + counts[kind], SLAB_ROWS), slabs(values), strict=True
            ):
                into[place : place + len(slab), :width] = slab

    shape = (sum(counts.values()), say_widths(widths, counts, reporter))
    return filled(scratch, "source/features", shape, np.float32, fill)


def _labels(
    raw: Path, counts: dict[str, int], starts: dict[str, int], reporter: Reporter, scratch: Scratch
) -> np.ndarray | None:
    tables = _tables(raw, "node-label", counts, scratch, reporter)
    if len(tables) > 1:
        raise FormatError(f"{raw / 'node-label'}: {', '.join(tables)} have labels; expected one node type with labels")
    for kind, values in tables.items():
        labels = np.full((sum(counts.values()), values.shape[1]), np.nan)
        labels[starts[kind] : starts[kind] + counts[kind]] = values
        return labels
    return None


def _split(folder: Path | None, counts: dict[str, int]) -> dict[str, np.ndarray]:
    """{"train", "val", "test": node ids of the whole graph}."""
    if folder is None:
        return {}
    flags = _flags(folder / "nodetype-has-split.csv.gz", counts)
    kinds = [kind for kind in counts if flags.get(kind, not flags and (folder / kind).is_dir())]
    split: dict[str, list[np.ndarray]] = {}
    for kind in kinds:
        for name, ids in split_ids(folder / kind).items():
            file = folder / kind / f"{dict(SPLITS)[name]}.csv.gz"
            split.setdefault(name, []).append(_shifted(ids, kind, counts, file))
    return {name: np.concatenate(parts) for name, parts in split.items()}
