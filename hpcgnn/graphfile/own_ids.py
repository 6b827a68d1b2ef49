"""The nodes' ids in the user's tables, numbers or words, so that results can be joined with them.

They are the one part of a graph file in the original order of the nodes. Files for people are written in that order,
slab by slab, so ids are read as they are needed. Reordering a graph leaves them in place. Words are stored one after
another with offsets: a column of texts of fixed length would be as wide as the longest.
"""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hpcgnn.errors import FormatError
from hpcgnn.graphfile.schema import Rows, Words

if TYPE_CHECKING:
    from hpcgnn.graphfile.storage import GraphFile

NUMBERS, OFFSETS, TEXT = "original/id", "original/id_offsets", "original/id_text"
_BLOCK = 1 << 16


def packed(ids: np.ndarray) -> Rows | Words | None:
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
    return "numbers" if NUMBERS in file else "words" if OFFSETS in file else ""


def read_ids(file: "GraphFile", nodes: np.ndarray) -> np.ndarray:
    """The ids of some nodes, int64 (m,) ascending: (m,) of integers, or of str objects.

    Only of a file that has ids. Raises FormatError for texts that are damaged.
    """
    ranges = _runs(nodes)
    if NUMBERS in file:
        return file.read(NUMBERS, ranges)
    bounds = file.read(OFFSETS, [(start, stop + 1) for start, stop in ranges], np.int64)
    firsts = np.cumsum([0, *(stop - start + 1 for start, stop in ranges)])
    begins = np.delete(bounds, firsts[1:] - 1) if len(nodes) else bounds[:0]
    lengths = np.delete(np.diff(bounds), firsts[1:-1] - 1) if len(nodes) else bounds[:0]
    if (lengths < 0).any() or (len(begins) and begins[0] < 0):
        raise FormatError(f"{file.path}: {OFFSETS} do not ascend; the file is corrupted, import the graph again")
    spans = [(int(bounds[first]), int(bounds[last - 1])) for first, last in itertools.pairwise(firsts)]
    text = file.read(TEXT, spans, np.uint8).tobytes()
    ends = np.cumsum(lengths).tolist()
    try:
        words = [text[start:stop].decode() for start, stop in zip([0, *ends], ends, strict=False)]
    except UnicodeDecodeError as error:
        raise FormatError(f"{file.path}: {TEXT} is no text in UTF-8 ({error}); import the graph again") from error
    return np.array(words, object)


def longest_id(file: "GraphFile") -> int:
    """Bytes of the longest id of a file whose ids are words."""
    nodes, most = file.meta.num_nodes, 0
    for start in range(0, nodes, _BLOCK):
        offsets = file.read(OFFSETS, [(start, min(start + _BLOCK, nodes) + 1)], np.int64)
        most = max(most, int(np.diff(offsets).max(initial=0)))
    return most


def _runs(nodes: np.ndarray) -> list[tuple[int, int]]:
    """[(start, stop)] of ascending numbers."""
    cuts = np.flatnonzero(np.diff(nodes) != 1) + 1
    return [(int(part[0]), int(part[-1]) + 1) for part in np.split(nodes, cuts) if len(part)]


def find_nodes(file: "GraphFile", wanted: Sequence[str], where: str) -> np.ndarray:
    """Return the numbers of the nodes with these ids, int64, ascending. Memory: the wanted ids, and one slab.

    Without ids in the file, the ids are these numbers.

    Args:
        file: the graph file.
        wanted: ids as texts.
        where: their origin, for messages.

    Raises:
        FormatError: an id has no node; the message names the first.
    """
    nodes, kind = file.meta.num_nodes, kind_of_ids(file)
    if kind != "words":
        numbers = _as_numbers(wanted, where, "ids" if kind else "numbers")
        if not kind:
            found = numbers[(numbers >= 0) & (numbers < nodes)]
            _all_there(numbers, found, where, f"0..{nodes - 1}")
            return found.astype(np.int64)
        keys: np.ndarray = numbers
    else:
        keys = np.unique(np.array(list(wanted), object))
    places, matched = [np.zeros(0, np.int64)], [keys[:0]]
    for start in range(0, nodes, _BLOCK):
        slab = read_ids(file, np.arange(start, min(start + _BLOCK, nodes)))
        here = np.flatnonzero(np.isin(slab, keys) if slab.dtype == keys.dtype == np.int64 else _among(slab, keys))
        places.append(here + start)
        matched.append(slab[here].astype(keys.dtype))
    _all_there(keys, np.concatenate(matched), where, f"the ids of {file.path}")
    return np.concatenate(places)


def nodes_of(file: "GraphFile", wanted: Sequence[str], where: str) -> np.ndarray:
    """int64 (m,): the number of the node with each id, in the order of `wanted`. See `find_nodes`."""
    nodes = find_nodes(file, wanted, where)
    ids = read_ids(file, nodes) if kind_of_ids(file) else nodes
    node_of = dict(zip(ids.tolist(), nodes.tolist(), strict=True))
    return np.array([node_of[word if ids.dtype == object else int(word)] for word in wanted], np.int64)


def ids_of(file: "GraphFile", nodes: np.ndarray) -> list[int | str]:
    """The ids of nodes int64 (m,) in any order; their numbers in a file without ids."""
    if not kind_of_ids(file):
        return nodes.tolist()
    some, place = np.unique(nodes, return_inverse=True)
    return read_ids(file, some)[place].tolist()


def doubled_ids(file: "GraphFile") -> str:
    """'', or how many nodes of a file that has ids share one with another. Of words, hashes are held."""
    nodes, found = file.meta.num_nodes, []
    for start in range(0, nodes, _BLOCK):
        ids = read_ids(file, np.arange(start, min(start + _BLOCK, nodes)))
        found.append(np.array([hash(word) for word in ids.tolist()], np.int64) if ids.dtype == object else ids)
    doubled = nodes - len(np.unique(np.concatenate(found)))
    return f"{doubled} nodes have the id of another" if doubled else ""


def _among(words: np.ndarray, keys: np.ndarray) -> np.ndarray:
    known = set(keys.tolist())
    return np.fromiter((word in known for word in words.tolist()), bool, len(words))


def _as_numbers(wanted: Sequence[str], where: str, what: str) -> np.ndarray:
    """Distinct, ascending; of Python's type int where numpy's int64 cannot hold them."""
    numbers = []
    for word in wanted:
        try:
            numbers.append(int(word))
        except ValueError:
            raise FormatError(
                f"{where}: expected {what} of nodes, one in a line, got {word[:40]!r}; the graph's ids are numbers"
            ) from None
    try:
        return np.unique(np.array(numbers, np.int64))
    except OverflowError:
        return np.unique(np.array(numbers, object))


def _all_there(wanted: np.ndarray, found: np.ndarray, where: str, known: str) -> None:
    missing = sorted(set(wanted.tolist()) - set(found.tolist())) if len(found) != len(wanted) else []
    if missing:
        raise FormatError(f"{where}: no node has the id {missing[0]} ({len(missing)} such ids); expected {known}")
