"""GraphML, read by NetworkX: the k-th node of the file is node k.

Attributes of nodes are single values, so that features come from tables. Of attributes those are read that are called
as those of `hpcgnn.from_networkx`: `y` (or label, class) and `split` of nodes, `weight` of edges.
"""

from pathlib import Path
from xml.etree.ElementTree import ParseError

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.external.scratch import Scratch
from partition_tools.graph_objects import arrays_of_networkx
from partition_tools.in_memory import as_split
from partition_tools.node_tables import label_numbers
from partition_tools.progress import Reporter
from partition_tools.raw import RawGraph
from partition_tools.sources.beside import assemble
from partition_tools.tables import OF_TABLES, TableOptions

NAME = "graphml"
LABELS = ("y", "label", "labels", "class")


def matches(path: Path) -> bool:
    """Whether a path looks like this format."""
    return path.name.removesuffix(".gz").endswith(".graphml")


def read(path: Path, tables: TableOptions, reporter: Reporter, scratch: Scratch) -> RawGraph:
    """The `RawGraph` of a file and its tables, whose rows are in the order of the file's nodes. Read at once."""
    tables.refuse(NAME, OF_TABLES)
    try:
        import networkx
    except ImportError as error:
        raise FormatError("reading GraphML needs NetworkX: pip install networkx") from error
    try:
        graph = networkx.read_graphml(path)
    except (networkx.NetworkXException, ParseError, OSError, ValueError, KeyError, EOFError) as error:
        raise FormatError(f"{path} is not readable GraphML: {error}") from error
    known = {name for _, data in graph.nodes(data=True) for name in data}
    label = next((name for name in LABELS if name in known), LABELS[0])
    unread = sorted(known - {label, "split"} | {n for *_, d in graph.edges(data=True) for n in d} - {"weight", "id"})
    if unread:
        reporter.warn(f"{path}: not read: the attributes {', '.join(unread)}; features come from a table (--features)")
    found = arrays_of_networkx(graph, label=label)
    src, dst = found["edge_index"]
    beside = assemble(
        src,
        dst,
        tables,
        path.name.split(".")[0],
        reporter,
        scratch,
        weight=found["edge_weight"],
        num_nodes=found["num_nodes"],
    )
    if beside.labels is None and found["labels"] is not None:
        beside.labels, words = label_numbers(np.asarray(found["labels"]), f"{path}: {label}")
        beside.type_names |= {"classes": words} if words else {}
    if not beside.split:
        beside.split = as_split(found["split"])
    return beside
