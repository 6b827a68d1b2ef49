"""Splits on their way into the file: masks, lists of node ids, or a random draw, as one number per node."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hpcgnn.errors import GraphError
from hpcgnn.graphfile.schema import SPLITS
from partition_tools.canonical.labels import labelled_nodes
from partition_tools.graph.raw import DataError
from partition_tools.workspace.settings import key


@dataclass(frozen=True)
class Fractions:
    """Fractions of the labelled nodes for a random split."""

    train: float | None = key("split.train", None, "fraction of the labelled nodes for a random training split", float)
    val: float | None = key("split.val", None, "fraction for validation", float)
    test: float | None = key("split.test", None, "fraction for testing (default: the rest)", float)

    def of_splits(self) -> tuple[float, float, float] | None:
        """The fractions, nothing for those left out and the rest for test; None for no random split."""
        if self.train is None and self.val is None and self.test is None:
            return None
        train, val = self.train or 0.0, self.val or 0.0
        return train, val, 1 - train - val if self.test is None else self.test


def canonical_split(
    split: Mapping[str, np.ndarray | None],
    n: int,
    fractions: Sequence[float] | None = None,
    seed: int = 0,
    resplit: bool = False,
    labels: np.ndarray | None = None,
    task: str = "auto",
) -> np.ndarray:
    """uint8 (n,) of `SPLITS` values, from masks or lists of node ids, or drawn at random by fractions of the labelled
    nodes.

    Raises GraphError where both are given, unless the random one is to replace the other (resplit).
    """
    result = np.zeros(n, np.uint8)
    if fractions is not None:
        present = [name for name, members in split.items() if members is not None]
        if present and not resplit:
            raise GraphError(
                f"the input has a split of its own ({', '.join(present)}), and a random one was asked for as well; "
                "split.resplit=true replaces it, and without --train, --val and --test it is kept"
            )
        _random_split(result, fractions, seed, labelled_nodes(labels, n, task))
        return result
    for name, members in split.items():
        if members is None:
            continue
        members = np.asarray(members)
        if members.dtype == bool:
            if members.shape != (n,):
                raise GraphError(f"the {name} mask has shape {members.shape}, expected ({n},)")
            members = np.flatnonzero(members)
        elif members.ndim != 1 or (len(members) and members.dtype.kind not in "iu"):
            raise GraphError(
                f"the {name} split must be a mask or a vector of node ids, got {members.dtype}{members.shape}"
            )
        elif len(members) == n > 2 and np.isin(members, (0, 1)).all():
            raise GraphError(
                f"the {name} split has a 0 or 1 for each of {n} nodes, which may be a mask or a list of ids; give a "
                "mask as booleans (split.astype(bool)), else name each node once"
            )
        elif len(members) and (members.min() < 0 or members.max() >= n):
            raise GraphError(f"the {name} split names a node outside 0..{n - 1}")
        members = members.astype(np.int64)
        if result[members].any():
            node = int(members[np.argmax(result[members] != 0)])
            raise DataError(node, f"is in two splits ({name} and another); the splits must not overlap", "splits")
        result[members] = SPLITS[name]
    return result


def _random_split(result: np.ndarray, fractions: Sequence[float], seed: int, nodes: np.ndarray) -> None:
    if min(fractions) < 0 or sum(fractions) > 1 + 1e-9:
        given = ", ".join(f"{name} {value:g}" for name, value in zip(SPLITS, fractions, strict=True))
        raise GraphError(
            f"the fractions of the splits must be from 0 to 1 and sum to at most 1, such as --train 0.6 --val 0.2; "
            f"got {given}"
        )
    order = nodes[np.random.Generator(np.random.PCG64(seed)).permutation(len(nodes))]
    stops = np.rint(np.cumsum(fractions) * len(nodes)).astype(np.int64)
    for value, start, stop in zip(SPLITS.values(), (0, *stops[:-1]), stops, strict=True):
        result[order[start:stop]] = value
