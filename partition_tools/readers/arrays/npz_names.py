"""Meanings of an archive's arrays: synonyms, splits as masks or lists of nodes, arrays that must not be dropped."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hpcgnn.errors import FormatError
from hpcgnn.graphfile.given_links import HELD
from partition_tools.canonical.links import NAMES, PAIRS, SHARED
from partition_tools.readers.tables.headings import SPLIT_OF
from partition_tools.workspace.progress import Reporter

_MASK, _INDEX = {"mask", "masks"}, {"idx", "idxs", "index", "indexes", "indices", "ids", "id", "node", "nodes", "inds"}
# In names of arrays that say something about the graph, its task, or who is in which split.
_MEANING = tuple(
    "edge adj label target mask idx index split feat weight attr time year date batch ptr rel train val test".split()
)
_KNOWN = set(
    "x y pos z t src dst row col data class classes graph num_classes num_nodes msg ts ntype ndata edata "
    "w wt wgt weights type etype kind relation".split()
)
_REMARKS = {
    f"num_{what}" for what in "nodes edges features feats node_features edge_types node_types labels targets".split()
}


def split_of(name: str) -> tuple[str, str] | None:
    """(split, "mask" | "index" | "") that an array is by its name (train_mask, idx_val, valid_nodes, test), or None."""
    words = [word for word in re.split(r"[_\-. /]+", name.lower()) if word != "split"]
    splits = [SPLIT_OF[word] for word in words if word in SPLIT_OF]
    rest = [word for word in words if word not in SPLIT_OF]
    if len(splits) != 1 or set(rest) - _MASK - _INDEX:
        return None
    return splits[0], "mask" if set(rest) & _MASK else "index" if rest else ""


def held_out(name: str) -> tuple[str, str, bool] | None:
    """(split, one of `links.NAMES`, whether it is turned) of an array of held-out edges by its name: val_edge,
    test_target_node_neg, or PyG's val_pos_edge_index and val_neg_edge_index (2, m); None for others.
    """
    first, _, part = name.lower().partition("_")
    split, of_pyg = SPLIT_OF.get(first), {"pos_edge_index": PAIRS, "neg_edge_index": SHARED}
    if split not in HELD or part not in (*NAMES, *of_pyg):
        return None
    return split, of_pyg.get(part, part), part in of_pyg


def meaning_of(name: str) -> tuple[str, str]:
    """`split_of` a name that is one of a split."""
    found = split_of(name)
    assert found is not None, f"{name} is no split"
    return found


def changes_meaning(name: str) -> bool:
    """Whether an unread array has, by its name, data that a graph without it would lack."""
    word = name.lower()
    if word in _REMARKS or word.endswith(("names", "name", "mapping")):
        return False
    return word in _KNOWN or any(part.startswith(_MEANING) for part in re.split(r"[_\-. /]+", word))


def refuse_unread(path: Path, unread: Sequence[str], reporter: Reporter) -> None:
    """FormatError for arrays that change the meaning of a graph; one warning for all others. unread: names."""
    wrong = [name for name in unread if changes_meaning(name)]
    if wrong:
        hints = [hint for names, hint in _HINTS if any(re.search(names, name.lower()) for name in wrong)]
        raise FormatError(
            f"{path} holds {', '.join(wrong)}, which {'are' if len(wrong) > 1 else 'is'} not "
            f"read{''.join(f' ({hint})' for hint in hints)}; a graph without would mean something else: "
            "rename what has another name here (--rename OLD=NEW), or leave out by intent with --ignore "
            f"{','.join(wrong)}"
        )
    if unread:
        reporter.warn(f"{path}: not read: {', '.join(unread)}")


_HINTS = (
    ("edge_(attr|feat)|efeat", "features of edges are called edge_attr: (E, F), one array"),
    (
        "edge_label|pos_edge|neg_edge|edge_y|train_(edge|source|target)",
        "held-out edges, for link prediction, are called val_edge and test_edge, (m, 2), and their negatives "
        "val_edge_neg and test_edge_neg; the edges of the graph are those of training",
    ),
    ("time|year|date", "graphs have no times"),
    ("batch|ptr", "one file holds one graph"),
    ("split", "give train_mask, val_mask and test_mask, or train_idx, val_idx and test_idx"),
)


def splits(path: Path, arrays: dict[str, np.ndarray], num_nodes: int, column: int | None) -> dict[str, np.ndarray]:
    """{"train" | "val" | "test": bool (n,) or int node ids} of the arrays that are splits; the rest is absent.

    arrays: {name: array}. column: of masks (n, K), or None. Raises FormatError for arrays that are neither masks nor
    node ids, and for two of one split that do not agree.
    """
    found: dict[str, np.ndarray] = {}
    origin: dict[str, str] = {}
    if column is not None and not any(array.ndim == 2 and array.shape[1] > 1 for array in arrays.values()):
        raise FormatError(f"--split-column is for masks of several columns; {path} has none")
    for name, array in arrays.items():
        split, members = meaning_of(name)[0], _members(path, name, array, num_nodes, column)
        if split in found and not np.array_equal(_ids(found[split], num_nodes), _ids(members, num_nodes)):
            raise FormatError(
                f"{path}: {origin[split]} and {name} are different {split} splits; leave one out with --ignore {name}"
            )
        found.setdefault(split, members)
        origin.setdefault(split, name)
    return found


def _ids(members: np.ndarray, num_nodes: int) -> np.ndarray:
    return np.flatnonzero(members) if members.dtype == bool else np.unique(members)


def _members(path: Path, name: str, array: np.ndarray, num_nodes: int, column: int | None) -> np.ndarray:
    kind = meaning_of(name)[1]
    if kind != "index" and array.ndim == 2 and len(array) == num_nodes:
        if array.shape[1] > 1 and column is None:
            raise FormatError(
                f"{path}: {name} has {array.shape[1]} columns, one for each of so many splits; choose one with "
                f"--split-column 0..{array.shape[1] - 1}"
            )
        if array.shape[1] > 1 and column is not None and not 0 <= column < array.shape[1]:
            raise FormatError(
                f"{path}: --split-column {column} is outside the columns 0..{array.shape[1] - 1} of {name}"
            )
        array = array[:, column if array.shape[1] > 1 else 0] if array.shape[1] else array
    if kind != "mask" and array.ndim == 2 and 1 in array.shape:
        array = array.reshape(-1)
    if array.dtype == bool:
        if array.ndim != 1:
            raise FormatError(f"{path}: {name} must be a vector of booleans, got {array.dtype}{array.shape}")
        return array
    if kind == "mask":
        if array.dtype.kind not in "iu" or array.ndim != 1 or not np.isin(array, (0, 1)).all():
            hint = f": {name}.astype(bool), where it is 0 and 1" if array.dtype.kind == "f" and array.ndim == 1 else ""
            raise FormatError(f"{path}: {name} must be a vector of booleans, got {array.dtype}{array.shape}{hint}")
        return array.astype(bool)
    if array.ndim != 1 or (len(array) and array.dtype.kind not in "iu"):
        raise FormatError(
            f"{path}: {name} must be a vector of node ids (integers), got {array.dtype}{list(array.shape)}"
        )
    if len(array) == num_nodes > 2 and np.isin(array, (0, 1)).all():
        raise FormatError(
            f"{path}: {name} has a 0 or 1 for each node, which may be a mask or a list of ids; call it "
            f"{meaning_of(name)[0]}_mask if it is a mask, else name each node once"
        )
    if len(array) and (array.min() < 0 or array.max() >= num_nodes):
        raise FormatError(
            f"{path}: {name} names node {array[np.argmax((array < 0) | (array >= num_nodes))]}, outside the nodes "
            f"0..{num_nodes - 1}"
        )
    return array.astype(np.int64)
