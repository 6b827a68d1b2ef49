"""A small graph as people write it: in any format, order of rows, and spelling of ids. Imports nothing of the package.

`Graph` is what is meant. `expected` says what a graph file must hold, with nodes numbered in the sorted order of their
ids. The writers write the same graph to a folder.
"""

import csv
import gzip
import io
import json
import re
from dataclasses import dataclass

import h5py
import networkx
import numpy as np
import pandas as pd
from hypothesis import strategies as st

SPLITS = {"": 0, "train": 1, "val": 2, "test": 3}
WORDS = [
    "a",
    "B",
    "b c",
    "C#",
    "C",
    "#tag",
    "%x",
    "1e2",
    "100",
    "3e0",
    "01",
    "1",
    "1.0",
    "NA",
    "null",
    "nan",
    "ü",
    "x,y",
    "-5",
]
CLASSES = ["C", "C#", "F %", "7up", "ü"]


@dataclass(frozen=True)
class Graph:
    """ids: of the nodes, distinct texts. edges: (source, destination) as places in ids. The rest is by node or edge."""

    ids: tuple[str, ...]
    edges: tuple[tuple[int, int], ...]
    weights: tuple[int, ...] | None
    features: tuple[int, ...]
    labels: tuple[str, ...]
    splits: tuple[str, ...]


def integers(text):
    """The integer that a text is in some spelling, or None."""
    found = re.fullmatch(r"([+-]?[0-9]+)(\.0*)?", text)
    return int(found[1]) if found else None


def ambiguous(graph):
    """Whether one number is written in two ways."""
    numbers = [integers(name) for name in graph.ids if integers(name) is not None]
    return len(set(numbers)) < len(numbers)


def order(graph):
    """Places in ids, in the order in which the nodes are numbered: as numbers if all are plain ones, else as text."""
    plain = all(re.fullmatch(r"[+-]?[0-9]+", name) for name in graph.ids)
    return sorted(range(len(graph.ids)), key=(lambda i: int(graph.ids[i])) if plain else (lambda i: graph.ids[i]))


@st.composite
def graphs(draw, ids=None, most=6, parallel=True):
    """Any small graph. ids: "numbers" 0..n-1, "gaps" (integers), "words", or None for one of them."""
    kind = ids or draw(st.sampled_from(["numbers", "gaps", "words"]))
    n = draw(st.integers(2, most))
    if kind == "numbers":
        names = [str(i) for i in draw(st.permutations(range(n)))]
    elif kind == "gaps":
        names = [
            str(i)
            for i in draw(
                st.lists(
                    st.sampled_from([-7, 0, 1, 3, 12, 2**31, 2**53 + 1, 2**62]), min_size=n, max_size=n, unique=True
                )
            )
        ]
    else:
        names = draw(st.lists(st.sampled_from(WORDS), min_size=n, max_size=n, unique=True))
    pair = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))
    edges = draw(st.lists(pair, min_size=1, max_size=8, unique=not parallel))
    weights = (
        tuple(draw(st.lists(st.integers(1, 9), min_size=len(edges), max_size=len(edges))))
        if draw(st.booleans())
        else None
    )
    return Graph(
        tuple(names),
        tuple(edges),
        weights,
        tuple(draw(st.lists(st.integers(-3, 3), min_size=n, max_size=n))),
        tuple(draw(st.lists(st.sampled_from(CLASSES), min_size=n, max_size=n))),
        tuple(draw(st.lists(st.sampled_from(list(SPLITS)), min_size=n, max_size=n))),
    )


def expected(graph, both_ways=False):
    """{name: value} of the file: edges as a sorted list of (source, destination, weight), all else by node."""
    nodes = order(graph)
    place = {old: new for new, old in enumerate(nodes)}
    weights = graph.weights or (1,) * len(graph.edges)
    edges = [(place[s], place[d], w) for (s, d), w in zip(graph.edges, weights, strict=True)]
    if both_ways:
        edges += [(d, s, w) for s, d, w in edges if s != d]
    return {
        "edges": sorted(edges),
        "features": [graph.features[i] for i in nodes],
        "labels": [graph.labels[i] for i in nodes],
        "splits": [SPLITS[graph.splits[i]] for i in nodes],
    }


def contents(path):
    """What a graph file holds, as `expected` has it, read with h5py alone; and its uuid."""
    with h5py.File(path) as file:
        indptr, sources = file["topology/indptr"][()], file["topology/indices"][()]
        weights = file["edges/weight"][()] if "edges/weight" in file else np.ones(len(sources))
        names = json.loads(file.attrs["type_names"])["classes"]
        destinations = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        return {
            "edges": sorted(zip(sources.tolist(), destinations.tolist(), weights.tolist(), strict=True)),
            "features": file["nodes/features"][:, 0].tolist(),
            "labels": [names[label] for label in file["nodes/labels"][()]],
            "splits": file["nodes/split"][()].tolist(),
        }, file.attrs["uuid"]


@dataclass(frozen=True)
class Spelling:
    """How text is written. quote: all fields, or those alone that need it."""

    separator: str = ","
    end: str = "\n"
    mark: bool = False
    packed: bool = False
    quote: bool = False
    heading: bool = True
    comment: bool = False
    key: str = "id"


spellings = st.builds(
    Spelling,
    st.sampled_from([",", "\t", " "]),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["id", "node_id", "nid", "index", "userid", ""]),
)


def write_text(path, rows, how, heading=None):
    """Write rows of fields; returns the path."""
    text = io.StringIO()
    if how.comment:
        text.write("# made by hand, with C#\n")
    writer = csv.writer(text, delimiter=how.separator, lineterminator="\n", quoting=csv.QUOTE_ALL)
    for row in ([heading] if heading else []) + [list(map(str, row)) for row in rows]:
        careful = how.quote or any(re.search(r"[#%\", \t]|^$", field) for field in row)
        writer.writerow(row) if careful else text.write(how.separator.join(row) + "\n")
    data = text.getvalue().replace("\n", how.end).encode()
    data = (b"\xef\xbb\xbf" if how.mark else b"") + data
    path = path.with_name(path.name + ".gz") if how.packed else path
    path.write_bytes(gzip.compress(data) if how.packed else data)
    return path


def tables(graph, folder, rows, how, write=write_text):
    """{"features" | "labels" | "splits": path} of tables that are keyed by the ids, in the order `rows`."""
    columns = {"features": graph.features, "labels": graph.labels, "splits": graph.splits}
    heads = {"features": "f", "labels": "label", "splits": "split"}
    return {
        name: write(folder / f"{name}.csv", [(graph.ids[i], values[i]) for i in rows], how, [how.key, heads[name]])
        for name, values in columns.items()
    }


def edge_rows(graph, rows):
    """Fields of the edges in the order `rows`."""
    weights = graph.weights or ("",) * len(graph.edges)
    found = [(graph.ids[graph.edges[i][0]], graph.ids[graph.edges[i][1]], weights[i]) for i in rows]
    return [row if graph.weights else row[:2] for row in found]


def frame(rows, heading):
    """A DataFrame of rows whose numbers are integers where a whole column is."""
    data = pd.DataFrame([list(map(str, row)) for row in rows], columns=heading)
    for name in data.columns:
        if data[name].str.fullmatch("-?(0|[1-9][0-9]*)").all():
            data[name] = data[name].astype("int64")
    return data


def write_parquet(path, rows, how, heading):
    """As `write_text`; a key without a name is the index."""
    table = frame(rows, heading)
    path = path.with_suffix(".parquet")
    (table.set_index(heading[0]).rename_axis(None) if heading[0] == "" else table).to_parquet(path)
    return path


def of_networkx(graph, rows, kind):
    """A graph of NetworkX whose nodes are added in the order `rows`, with attributes y, split and x."""
    made = kind()
    for i in rows:
        made.add_node(graph.ids[i], y=graph.labels[i], split=graph.splits[i], x=float(graph.features[i]))
    for (s, d), weight in zip(graph.edges, graph.weights or (1,) * len(graph.edges), strict=True):
        made.add_edge(graph.ids[s], graph.ids[d], **({"weight": weight} if graph.weights else {}))
    return made


GRAPHS = {True: networkx.MultiDiGraph, False: networkx.MultiGraph}
