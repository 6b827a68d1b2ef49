"""Graphs in the format of METIS, Chaco and KaHIP (METIS manual, section 4.1.1): a line for each node with its
neighbours, counted from 1, after a line `nodes edges [fmt [ncon]]`.

Such a graph is undirected, and each edge stands at both of its ends. The three digits of fmt mark sizes and `ncon`
weights of nodes at the begin of lines, which are not read, and a weight behind each neighbour.
"""

import re
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
_NONE = np.zeros(0, np.int64)


def matches(path: Path) -> bool:
    """Whether a path looks like this format."""
    return path.is_file() and path.suffix in SUFFIXES


def read(path: Path, tables: NodeTables, scratch: Scratch) -> RawGraph:
    """The `RawGraph` of a file of METIS and its tables. FormatError naming the line that is wrong."""
    with readable(path):
        lines = [line.rstrip("\r\n") for line in lines_of(path) if not line.lstrip().startswith(COMMENTS)]
    nodes, edges, before, weighted = _header(path, lines[0] if lines else "")
    if len(lines) <= nodes or any(line.strip() for line in lines[nodes + 1 :]):
        raise FormatError(
            f"{path}: the first line states {nodes} nodes, but {len(lines) - 1} lines follow; expected one for each"
        )
    if before:
        scratch.reporter.warn(f"{path}: sizes and weights of nodes are not read")
    step = 2 if weighted else 1
    numbers = [_numbers(path, node, line, before, step) for node, line in enumerate(lines[1 : nodes + 1], 1)]
    ends = [each[before::step] for each in numbers]
    src, dst = np.concatenate([_NONE, *ends]), np.repeat(np.arange(nodes), list(map(len, ends)))
    weight = np.concatenate([_NONE, *(each[before + 1 :: step] for each in numbers)]) if weighted else np.ones_like(src)
    if len(src) and not 1 <= src.min() <= src.max() <= nodes:
        wrong = int(np.argmax((src < 1) | (src > nodes)))
        raise FormatError(f"{path}: node {dst[wrong] + 1} has the neighbour {src[wrong]}, outside the nodes 1..{nodes}")
    if len(src) != 2 * edges:
        raise FormatError(
            f"{path}: the first line states {edges} edges, so that {2 * edges} neighbours should follow, not {len(src)}"
        )
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


def _header(path: Path, line: str) -> tuple[int, int, int, bool]:
    """(nodes, edges, numbers that stand before the neighbours of a line, whether neighbours have weights)."""
    found = re.fullmatch(r"\s*(\d+)\s+(\d+)(?:\s+([01]{1,3})(?:\s+(\d+))?)?\s*", line, re.ASCII)
    if found is None:
        raise FormatError(
            f"{path}: the first line is {line[:40]!r}, expected: nodes edges [fmt [ncon]], with fmt of the "
            "digits 0 and 1"
        )
    sizes, weights, weighted = (digit == "1" for digit in (found[3] or "").rjust(3, "0"))
    return int(found[1]), int(found[2]), sizes + weights * int(found[4] or 1), weighted


def _numbers(path: Path, node: int, line: str, before: int, step: int) -> np.ndarray:
    """The numbers of the line of a node, int64. before: those that are not of neighbours. step: of each neighbour."""
    try:
        found = np.array([int(word) for word in line.split()], np.int64)
    except (ValueError, OverflowError) as error:
        raise FormatError(f"{path}: the line of node {node} has a word: {error}") from error
    if len(found) < before or (len(found) - before) % step:
        raise FormatError(
            f"{path}: the line of node {node} has {len(found)} numbers; expected {before} and then "
            f"{'pairs of a neighbour and a weight' if step == 2 else 'neighbours'}"
        )
    return found
