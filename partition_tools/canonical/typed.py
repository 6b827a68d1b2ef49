"""Types of nodes and edges on their way into the file, and the reverse relations that a typed graph may need.

A relational network has weights for each type, so the number of types decides the number of its parameters. A column
of years or identifiers must be an error here, not a model of a million matrices.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from hpcgnn.errors import GraphError
from partition_tools.graph.raw import DataError

MAX_TYPES = 1 << 16
REVERSED = "{} reversed"


def numbered_types(types: Any, what: str, names: Sequence[str]) -> tuple[Any, Sequence[str]]:
    """(types, their names): types that are words as int64, numbered in the sorted order of the words, their names.

    Raises GraphError for words beside names, for an edge or a node without a word, and for directions of edges.
    """
    if types is None or types.dtype.kind not in "OUS":
        return types, names
    if names:
        raise GraphError(f"the {what} types are words, and there are names of {what} types as well; leave them out")
    given = (word.decode(errors="replace") if isinstance(word, bytes) else word for word in types.reshape(-1).tolist())
    texts = np.array(["" if word is None or word != word else str(word).strip() for word in given], str)
    if (texts == "").any():
        raise GraphError(f"{what} {int(np.argmax(texts == ''))} has no type; give one to each")
    words, numbers = np.unique(texts, return_inverse=True)
    if len(words) > MAX_TYPES:
        raise GraphError(f"there are {len(words):,} {what} types, expected at most {MAX_TYPES:,}; is this the column?")
    return numbers.reshape(types.shape), words.tolist()


def canonical_types(
    types: np.ndarray | None, count: int, what: str, names: Sequence[str] = (), before: int = 0
) -> np.ndarray | None:
    """Types as int32 (count,), counted from 0, or None where there are none.

    what: "edge" or "node", for messages. names: names of the types in order, or empty. before: the number of earlier
    types. Raises GraphError naming the first type that is not a whole number from 0, has no name, or is beyond
    MAX_TYPES.
    """
    if types is None:
        if names:
            raise GraphError(f"there are names of {what} types but no {what} types")
        return None
    types = np.asarray(types)
    if types.ndim == 2 and types.shape[1] == 1:
        types = types[:, 0]
    if types.shape != (count,):
        raise GraphError(f"there are {count} {what}s but {what} types of shape {types.shape}; expected one of each")
    if types.dtype.kind == "f":
        if np.isnan(types).any():
            raise DataError(
                before + int(np.argmax(np.isnan(types))), "has no type; give one to each", f"{what} types", item=what
            )
        types = types.astype(np.int64) if np.array_equal(types, np.rint(types)) else types
    if types.dtype.kind not in "iu":
        raise GraphError(f"{what} types must be whole numbers from 0, got {types.dtype}")
    limit = len(names) or MAX_TYPES
    wrong = (types < 0) | (types >= limit)
    if wrong.any():
        hint = (
            f"there are {limit} names of types" if names else f"at most {MAX_TYPES:,} types; is this the right column?"
        )
        first = int(np.argmax(wrong))
        text = f"has type {types[first]}; {what} types are from 0 to {limit - 1} ({hint})"
        raise DataError(before + first, text, f"{what} types", item=what)
    return types.astype(np.int32)


def canonical_names(names: Mapping[str, Iterable[object]]) -> dict[str, list[str]]:
    """{"nodes": [...], "edges": [...], "classes": [...]} without the empty ones; GraphError for a name that is there
    twice or is empty."""
    checked = {}
    for what, given in names.items():
        texts = [str(name) for name in given]
        wrong = [name for name, times in Counter(texts).items() if times > 1 or not name]
        if wrong:
            raise GraphError(
                f"the names of the {what if what == 'classes' else f'types of {what}'} must be distinct and not "
                f"empty, got {wrong[0]!r}"
            )
        if texts:
            checked[what] = texts
    return checked
