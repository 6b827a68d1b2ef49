"""GraphML, read by NetworkX. The file names its nodes. They are numbered in the sorted order of the names, as an edge
list's nodes are with --relabel. The graph file keeps the names.

Attributes of nodes are single values, so features come from tables, matched by the names. The attributes
`y` (or label, class) and `split` of nodes and `weight` of edges are read, as by `partition_tools.from_networkx`.
An attribute that is different in each node is its name, and no class.
"""

import gzip
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.graph.raw import RawGraph
from partition_tools.readers.arrays.graph_objects import arrays_of_networkx, unread_attributes
from partition_tools.readers.arrays.in_memory import as_split
from partition_tools.readers.formats.edges_with_tables import assemble, counts
from partition_tools.readers.tables.node_ids import alike
from partition_tools.readers.tables.node_tables import label_numbers
from partition_tools.readers.tables.row_keys import FEW_ROWS
from partition_tools.readers.tables.tables import OF_TABLES, TableOptions
from partition_tools.workspace.progress import Reporter
from partition_tools.workspace.scratch import Scratch

NAME = "graphml"
LABELS = ("y", "label", "labels", "class")


def matches(path: Path) -> bool:
    """Whether a path looks like this format."""
    return path.name.removesuffix(".gz").endswith(".graphml")


def read(path: Path, tables: TableOptions, reporter: Reporter, scratch: Scratch) -> RawGraph:
    """The `RawGraph` of a file and its tables, matched by the names of the nodes. Read at once."""
    tables.refuse(NAME, OF_TABLES)
    try:
        import networkx
    except ImportError as error:
        raise FormatError("reading GraphML needs NetworkX: pip install networkx") from error
    try:
        graph = networkx.read_graphml(path)
    except (networkx.NetworkXException, ParseError, OSError, ValueError, KeyError, EOFError) as error:
        raise FormatError(f"{path} is not readable GraphML: {error}") from error
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
        count = len(re.findall(rb"<graph[\s>]", file.read()))
    if count > 1:
        raise FormatError(f"{path} holds {count} graphs, expected one")
    nodes = dict(graph.nodes(data=True))
    names = _names(nodes, path, reporter)
    label = _label(nodes, path)
    if unread := unread_attributes(graph, {label or "", "split"}, {"weight", "id"}):
        reporter.warn(f"{path}: not read: the attributes {', '.join(unread)}; features come from a table (--features)")
    arrays = arrays_of_networkx(graph, label=label or "")
    src, dst = names[arrays["edge_index"]]
    beside = assemble(
        src, dst, tables, path.name, reporter, scratch, weight=arrays["edge_weight"], num_nodes=len(names), names=names
    )
    beside.source = path.name.split(".")[0]
    same = alike({str(path): names})[str(path)]
    order = np.argsort(same, kind="stable")  # of the nodes of the file, as the graph has them
    if beside.labels is None and arrays["labels"] is not None:
        labels, words = label_numbers(np.asarray(arrays["labels"]), f"{path}: {label}")
        beside.labels = labels[order]
        beside.type_names |= {"classes": words} if words else {}
    if not beside.split:
        beside.split = {
            split: None if members is None else members[order] for split, members in as_split(arrays["split"]).items()
        }
    return beside


def _names(nodes: Mapping[str, Mapping[str, Any]], path: Path, reporter: Reporter) -> np.ndarray:
    """The names of the nodes, integers or text (n,): the ids of the file. If these only count the nodes, an attribute
    `name` or `id` that is different in each.
    """
    ids = np.array(list(nodes), dtype=str)
    for attribute in ("name", "id") if counts(ids) else ():
        values = [data.get(attribute) for data in nodes.values()]
        if all(isinstance(value, str | int) and not isinstance(value, bool) for value in values):
            texts = [str(value).strip() for value in values]
            if len(set(texts)) == len(texts) and "" not in texts:
                reporter.stage(f"{path}: nodes are called as their attribute {attribute} says")
                return np.array(texts, dtype=str)
    return ids


def _label(nodes: Mapping[str, Mapping[str, Any]], path: Path) -> str | None:
    """The attribute that is the label, or None. FormatError where two attributes may be."""
    there = []
    for name in LABELS:
        values = [str(data[name]).strip() for data in nodes.values() if data.get(name) is not None]
        if values and (name == "y" or not len(values) == len(nodes) == len(set(values)) >= FEW_ROWS):
            there.append(name)
    if len(there) > 1:
        raise FormatError(
            f"{path} has the attributes {' and '.join(there)} of nodes, and each may be the label; give the label in a "
            "table (--labels), or take one of them out"
        )
    return there[0] if there else None
