"""The nodes' ids in the user's tables, numbers or words, so that results can be joined with them.

They are the one part of a graph file in the original order of the nodes. Files for people are written in that order,
slab by slab, so ids are read as they are needed. Reordering a graph leaves them in place. Words are stored one after
another with offsets: a column of texts of fixed length would be as wide as the longest.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcgnn.errors import FormatError
from hpcgnn.graphfile.schema import ID_NUMBERS, ID_OFFSETS, ID_TEXT, RowReader, Words

if TYPE_CHECKING:
    from hpcgnn.graphfile.storage import GraphFile

_BLOCK = 1 << 16


def packed(ids: np.ndarray) -> RowReader | Words | None:
    """Return the stored form of all nodes' ids (n,), integers or text; None if they equal the nodes' numbers."""
    if ids.dtype.kind in "iu":
        return None if np.array_equal(ids, np.arange(len(ids))) else ids
    offsets, parts = np.zeros(len(ids) + 1, np.int64), [np.zeros(0, np.uint8)]
    for start in range(0, len(ids), _BLOCK):
        encoded = [str(word).encode() for word in ids[start : start + _BLOCK].tolist()]
        offsets[start + 1 : start + 1 + len(encoded)] = [len(word) for word in encoded]
        parts.append(np.frombuffer(b"".join(encoded), np.uint8))
    return Words(np.cumsum(offsets), np.concatenate(parts))


def kind_of_ids(file: "GraphFile") -> str:
    """Return the kind of ids in a file: 'numbers', 'words', or '' for nodes with numbers alone."""
    return "numbers" if ID_NUMBERS in file else "words" if ID_OFFSETS in file else ""


def read_ids(file: "GraphFile", nodes: np.ndarray) -> np.ndarray:
    """The ids of some nodes, int64 (m,) ascending: (m,) of integers, or of str objects.

    Only of a file that has ids. Raises FormatError for texts that are damaged.
    """
    runs = np.split(nodes, np.flatnonzero(np.diff(nodes) != 1) + 1) if len(nodes) else []
    ranges = [(int(run[0]), int(run[-1]) + 1) for run in runs]
    if ID_NUMBERS in file:
        return file.read(ID_NUMBERS, ranges)
    begins = file.read(ID_OFFSETS, ranges, np.int64)
    ends = file.read(ID_OFFSETS, [(start + 1, stop + 1) for start, stop in ranges], np.int64)
    if (ends < begins).any() or begins.min(initial=0) < 0:
        raise FormatError(f"{file.path}: {ID_OFFSETS} do not ascend; the file is corrupted, import the graph again")
    places = itertools.pairwise(itertools.accumulate((len(run) for run in runs), initial=0))
    spans = [(int(begins[first]), int(ends[last - 1])) for first, last in places]
    text, stops = file.read(ID_TEXT, spans, np.uint8).tobytes(), np.cumsum(ends - begins).tolist()
    try:
        words = [text[start:stop].decode() for start, stop in itertools.pairwise([0, *stops])]
    except UnicodeDecodeError as error:
        raise FormatError(f"{file.path}: {ID_TEXT} is no text in UTF-8 ({error}); import the graph again") from error
    return np.array(words, object)


def _slabs(file: "GraphFile") -> Iterator[tuple[int, np.ndarray]]:
    """(first node, ids) of all nodes of a file that has ids, some at a time."""
    for start in range(0, file.meta.num_nodes, _BLOCK):
        yield start, read_ids(file, np.arange(start, min(start + _BLOCK, file.meta.num_nodes)))


def longest_id(file: "GraphFile") -> int:
    """Bytes of the longest id of a file whose ids are words."""
    nodes, starts = file.meta.num_nodes, range(0, file.meta.num_nodes, _BLOCK)
    slabs = (file.read(ID_OFFSETS, [(start, min(start + _BLOCK, nodes) + 1)], np.int64) for start in starts)
    return max((int(np.diff(offsets).max(initial=0)) for offsets in slabs), default=0)


def nodes_of(file: "GraphFile", wanted: Sequence[str], where: str) -> np.ndarray:
    """int64 (m,): the number of the node with each id, in the order of `wanted`. Memory: the wanted ids, and one slab.

    Without ids in the file, the ids are these numbers.

    Args:
        file: the graph file.
        wanted: ids as texts.
        where: their origin, for messages.

    Raises:
        FormatError: an id has no node; the message names the first.
    """
    nodes, kind = file.meta.num_nodes, kind_of_ids(file)
    keys: list[Any] = list(wanted) if kind == "words" else [_as_number(word, where, kind) for word in wanted]
    known = set(keys)
    node_of = {} if kind else {key: key for key in known if 0 <= key < nodes}
    for start, ids in _slabs(file) if kind else ():
        some = np.arange(len(ids))
        if kind == "numbers":  # whether a few are among many is asked of numpy
            limits = np.iinfo(ids.dtype)
            numbers = np.array([key for key in known if limits.min <= key <= limits.max], ids.dtype)
            some = np.flatnonzero(np.isin(ids, numbers))
        node_of |= {key: start + at for at, key in zip(some.tolist(), ids[some].tolist(), strict=True) if key in known}
    if missing := sorted(known - node_of.keys()):
        there = f"the ids of {file.path}" if kind else f"0..{nodes - 1}"
        raise FormatError(f"{where}: no node has the id {missing[0]} ({len(missing)} such ids); expected {there}")
    return np.array([node_of[key] for key in keys], np.int64)


def ids_of(file: "GraphFile", nodes: np.ndarray) -> list[int | str]:
    """The ids of nodes int64 (m,) in any order; their numbers in a file without ids."""
    if not kind_of_ids(file):
        return nodes.tolist()
    some, place = np.unique(nodes, return_inverse=True)
    return read_ids(file, some)[place].tolist()


def doubled_ids(file: "GraphFile") -> str:
    """'', or how many nodes of a file that has ids share one with another. Of words, hashes are held."""
    words = kind_of_ids(file) == "words"
    keys = [np.array([hash(word) for word in ids], np.int64) if words else ids for _, ids in _slabs(file)]
    doubled = file.meta.num_nodes - len(np.unique(np.concatenate(keys)))
    return f"{doubled} nodes have the id of another" if doubled else ""


def _as_number(word: str, where: str, kind: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise FormatError(
            f"{where}: expected {'ids' if kind else 'numbers'} of nodes, one in a line, got {word[:40]!r}; the graph's "
            "ids are numbers"
        ) from None
