"""Nodes with any numbers or words as ids: one numbering, in the sorted order of the ids, for all files of a graph.

Numbers are compared as numbers and words as words. One number in two spellings is an error: two nodes would become one,
or one node two. Edges name each node many times; so distinct ids and places are found block by block.
"""

import functools
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.graph.counts import BLOCK, blocks
from partition_tools.workspace.scratch import Scratch

_SPELLED = re.compile(r"([+-]?[0-9]+)(\.0*)?")
# A table over the range of ids, or places of ids, may take this part of the memory.
SHARE = 4


def alike(ids: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same ids, all of one kind that sorts and compares as they mean: int64, uint64 or text.

    ids: {where they come from: array of integers or of text}. Raises FormatError for a number that is written in two
    ways (01 and 1), or with a point (1.0), and for an empty id.
    """
    for where, each in ids.items():
        if each.dtype.kind not in "iuU":
            raise FormatError(f"{where}: expected node ids that are integers or words, got {each.dtype}")
        if each.dtype.kind == "U" and (each == "").any():
            raise FormatError(f"{where}: row {int(np.argmax(each == ''))} has an empty node id")
    if any(each.dtype.kind == "U" for each in ids.values()):
        _check_spelling(np.unique(np.concatenate([np.unique(each).astype(str) for each in ids.values()])), list(ids))
        return {where: each.astype(str) for where, each in ids.items()}
    limits = [limit for each in ids.values() if each.size for limit in (int(each.min()), int(each.max()))]
    if min(limits, default=0) < 0 and max(limits, default=0) >= 2**63:
        raise FormatError(f"the node ids {min(limits)} to {max(limits)} fit in no type of integers")
    kind = np.uint64 if max(limits, default=0) >= 2**63 else np.int64
    return {where: each.astype(kind, copy=False) for where, each in ids.items()}


def _check_spelling(texts: np.ndarray, where: Sequence[str]) -> None:
    numbers: dict[int, str] = {}
    for text in texts.tolist():
        if spelled := _SPELLED.fullmatch(text):
            other = numbers.setdefault(int(spelled[1]), text)
            if other != text or spelled[2]:
                raise FormatError(
                    f"the node ids {other} and {spelled[1] if other == text else text} are one number but two texts; "
                    f"write integers, in one way in {', '.join(where)}"
                )


def numbered(
    edges: dict[str, np.ndarray], keyed: dict[str, np.ndarray], scratch: Scratch
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """(all ids, sorted; {name: place in them} of `edges` and `keyed`, {name: ids}).

    Raises FormatError for a table that shares no id with the edges. Places of large vectors of integers are mapped
    files of `scratch`. Further memory: 16 bytes per id of a node, words in full.
    """
    same = alike({**edges, **keyed})
    known = distinct([same[end] for end in edges], scratch)
    names = distinct([known, *(same[name] for name in keyed)], scratch)
    for name in keyed:
        if len(known) and len(same[name]) and not np.isin(same[name], known).any():
            raise FormatError(
                f"no id of the {name} (such as {same[name][0]}) is an id of the edges (such as {known[0]}); the "
                "ids must be written alike"
            )
    find = _Places(names, scratch)
    return names, {name: find(ids, name) for name, ids in same.items()}


def distinct(ids: Sequence[np.ndarray], scratch: Scratch) -> np.ndarray:
    """The sorted distinct elements of all vectors, of integers of one kind or of text. Memory: 16 bytes for each, and a
    part of `scratch.memory`.
    """
    parts, held = [ids[0][:0]], 0
    for each in ids:
        for block in _blocks(each, scratch):
            parts.append(np.unique(block))
            held += parts[-1].nbytes
            if held > max(scratch.memory // SHARE, 2 * parts[0].nbytes):
                parts, held = [np.unique(np.concatenate(parts))], 0
    return np.unique(np.concatenate(parts))


def _blocks(array: np.ndarray, scratch: Scratch) -> Iterator[np.ndarray]:
    return blocks(array, min(BLOCK, max(scratch.memory // 64, 1 << 10)))


class _Places:
    """Places in `names`, sorted and distinct; call it with a vector of them and a name in the scratch directory."""

    def __init__(self, names: np.ndarray, scratch: Scratch) -> None:
        self.names, self.scratch = names, scratch

    @functools.cached_property
    def table(self) -> np.ndarray | None:
        """The place of each id from the smallest to the largest (undefined where there is none), if that is small."""
        if self.names.dtype.kind not in "iu" or not len(self.names) or self.names[0] < 0:
            return None
        width = int(self.names[-1]) - int(self.names[0]) + 1
        if width * 8 > self.scratch.memory // SHARE or width > 64 * len(self.names):
            return None
        table = np.zeros(width, np.int64)
        table[(self.names - self.names[0]).astype(np.int64, copy=False)] = np.arange(len(self.names))
        return table

    def __call__(self, ids: np.ndarray, name: str) -> np.ndarray:
        """int64 of the shape of `ids`: in memory, or mapped where it is a large part of it. All ids must be there."""
        if ids.dtype.kind == "U" or 8 * len(ids) <= self.scratch.memory // SHARE:
            return self._of(ids)
        key = f"source/place-of-{name}"
        with self.scratch.array(key, ids.shape, np.int64) as places:
            for source, target in zip(_blocks(ids, self.scratch), _blocks(places, self.scratch), strict=True):
                target[:] = self._of(source)
        return self.scratch.load(key)

    def _of(self, ids: np.ndarray) -> np.ndarray:
        if self.table is None:
            return np.searchsorted(self.names, ids)
        return self.table[(ids - self.names[0]).astype(np.int64, copy=False)]
