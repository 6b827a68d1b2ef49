"""Graphs in the format of METIS, Chaco and KaHIP (METIS manual, section 4.1.1): a line for each node with its
neighbours, counted from 1, after a line `nodes edges [fmt [ncon]]`.

Such a graph is undirected, and each edge stands at both of its ends. The three digits of fmt mark sizes and `ncon`
weights of nodes at the begin of lines, which are not read, and a weight behind each neighbour.
"""

from pathlib import Path

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.graph.raw import RawGraph
from partition_tools.readers.tables.node_tables import beside
from partition_tools.readers.tables.tables import NodeTables
from partition_tools.readers.tables.text import COMMENTS, readable
from partition_tools.readers.tables.text import lines as lines_of
from partition_tools.workspace.scratch import Scratch

NAME = "metis"
OPTIONS = NodeTables
SUFFIXES = (".graph", ".metis", ".chaco")


def matches(path: Path) -> bool:
    """Whether a path looks like this format."""
    return path.is_file() and path.suffix in SUFFIXES


def read(path: Path, tables: NodeTables, scratch: Scratch) -> RawGraph:
    """The `RawGraph` of a file of METIS and its tables. FormatError naming the line that is wrong."""
    with readable(path):
        lines = [line.rstrip("\r\n").encode() for line in lines_of(path) if not line.lstrip().startswith(COMMENTS)]
    nodes, edges, before, weighted = _header(path, lines[0] if lines else b"")
    rows = lines[1 : nodes + 1]
    if len(rows) < nodes or any(line.strip() for line in lines[nodes + 1 :]):
        raise FormatError(
            f"{path}: the first line states {nodes} nodes, but {len(lines) - 1} lines follow; expected one for each"
        )
    if before:
        scratch.reporter.warn(f"{path}: sizes and weights of nodes are not read")
    src, dst, weight = _neighbours(path, rows, before, weighted)
    if len(src) and not 1 <= src.min() <= src.max() <= nodes:
        wrong = int(np.argmax((src < 1) | (src > nodes)))
        raise FormatError(f"{path}: node {dst[wrong] + 1} has the neighbour {src[wrong]}, outside the nodes 1..{nodes}")
    if len(src) != 2 * edges:
        raise FormatError(
            f"{path}: the first line states {edges} edges, so that {2 * edges} neighbours should follow, not {len(src)}"
        )
    weight = weight if weighted else np.ones(len(src), np.int64)
    _check_both_ends(path, src - 1, dst, weight)
    raw = RawGraph(src - 1, dst, nodes, weight=weight if weighted else None, source=path.stem)
    return beside(raw, tables, scratch, first=1)


def _check_both_ends(path: Path, src: np.ndarray, dst: np.ndarray, weight: np.ndarray) -> None:
    """FormatError for an edge that stands at one of its ends only, or with another weight."""
    if (loops := src == dst).any():
        raise FormatError(f"{path}: node {dst[np.argmax(loops)] + 1} is its own neighbour; METIS has no self loops")
    here, there = np.lexsort([weight, src, dst]), np.lexsort([weight, dst, src])
    differs = (src[here] != dst[there]) | (dst[here] != src[there]) | (weight[here] != weight[there])
    if differs.any():
        edge = here[int(np.argmax(differs))]
        raise FormatError(
            f"{path}: the edges at node {dst[edge] + 1} and at node {src[edge] + 1} differ; expected each edge at both "
            "of its ends, with one weight, as METIS has it (a directed graph is imported as an edge list)"
        )


def _header(path: Path, line: bytes) -> tuple[int, int, int, bool]:
    """(nodes, edges, numbers that stand before the neighbours of a line, whether neighbours have weights)."""
    words = line.split()
    if not (2 <= len(words) <= 4 and all(word.isdigit() for word in words)) or set(b"".join(words[2:3])) - set(b"01"):
        raise FormatError(
            f"{path}: the first line is {line[:40].decode(errors='replace')!r}, expected: nodes edges [fmt [ncon]], "
            "with fmt of the digits 0 and 1"
        )
    sizes, weights, weighted = (digit == "1" for digit in f"{int(words[2]) if len(words) > 2 else 0:03}"[-3:])
    constraints = int(words[3]) if len(words) > 3 else 1
    return int(words[0]), int(words[1]), sizes + weights * constraints, weighted


def _neighbours(
    path: Path, lines: list[bytes], before: int, weighted: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(neighbours from 1, nodes from 0, weights) of the lines of all nodes."""
    words = [line.split() for line in lines]
    counts = np.array(list(map(len, words)), np.int64)
    try:
        values = np.fromiter((int(word) for line in words for word in line), np.int64, counts.sum())
    except (ValueError, OverflowError) as error:
        raise FormatError(f"{path}: the line of a node has a word: {error}") from error
    short = (counts < before) | ((counts - before) % 2 == 1 if weighted else False)
    if short.any():
        raise FormatError(
            f"{path}: the line of node {int(np.argmax(short)) + 1} has {counts[np.argmax(short)]} numbers; "
            f"expected {before} and then {'pairs of a neighbour and a weight' if weighted else 'neighbours'}"
        )
    place = np.arange(len(values)) - np.repeat(np.cumsum(counts) - counts, counts) - before
    node = np.repeat(np.arange(len(lines)), counts)
    is_weight = (place >= 0) & (place % 2 == 1) & weighted
    is_neighbour = (place >= 0) & ~is_weight
    return values[is_neighbour], node[is_neighbour], values[is_weight]
