"""The meanings of columns from their names. A column with an uncertain meaning is an error that asks for it."""

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from hpcgnn.errors import FormatError
from partition_tools.graph.counts import TWO_KINDS

# What --edge-columns may call a column; `feature` and `_` as often as wanted.
COLUMNS = ("src", "dst", "weight", "type", "feature", "_")
ENDS = ("src", "dst")
_WORDS = {"src": "src source from", "dst": "dst destination target to", "weight": "weight", "type": "type", "_": "_"}
ROLES = {word: role for role, words in _WORDS.items() for word in words.split()}
#: The spellings of an input that are read, for the refusal of all others.
SPELLINGS = (
    "an edge list (.csv, .tsv, .txt, .parquet) with the columns src,dst and perhaps weight,type; tables of nodes with "
    "a column id; or arrays (.npz, .pt) with edge_index"
)
# The words for the three splits.
_SPLIT_WORDS = {"train": "train training", "val": "val valid validation dev", "test": "test testing"}
SPLIT_OF = {word: split for split, words in _SPLIT_WORDS.items() for word in words.split()}
_NO_IDS = ("class", "label", "type", "category", "target", "split")
_NAMES = "idx index node vertex key name code uri url iri indexlevel0"


def role(name: object) -> str | None:
    """The one of `COLUMNS` that a column of this name is, or None for a name that is not known."""
    return ROLES.get(str(name).strip().lower())


def _plain(name: object) -> str:
    return re.sub(r"[^a-z0-9]", "", str(name).lower())


def is_id(name: object) -> bool:
    """Whether a column of this name holds the ids of nodes: id, node_id, node."""
    return _plain(name) in ("id", "nodeid", "node")


def says_id(name: object) -> bool:
    """Whether a name says by itself that its column names nodes: as `is_id`, and paper_id, userId, nid, index."""
    marked = re.search(r"[_\-. :][iI][dD]$|[a-z]I[dD]$", str(name).strip()) and not _plain(name).startswith(_NO_IDS)
    return is_id(name) or bool(marked) or _plain(name) in ("nid", "idx", "index", "userid")


def may_be_id(name: object) -> bool:
    """Whether a column of this name may hold ids: it has no name, or one such as paper_id, userId, key or name."""
    word = _plain(name)
    return not word or (word.endswith(("id", *_NAMES.split())) and not word.startswith(_NO_IDS))


def names_ends(names: Sequence[Any]) -> bool:
    """Whether a line of words names both ends of an edge, so that it is a heading even if numbers stand in it."""
    roles = [role(name) for name in names]
    return all(roles.count(end) == 1 for end in ENDS)


def columns_of(names: Sequence[Any], path: Path, features: Collection[str] = ()) -> tuple[str, ...]:
    """One of `COLUMNS` for each name of a heading. FormatError where that would be a guess. features: names of those
    that are features of edges, whatever they are called.
    """
    if missing := [name for name in features if list(names).count(name) != 1]:
        raise FormatError(
            f"--edge-features {missing[0]}: expected a column of {path}, which has {', '.join(map(str, names))}"
        )
    roles = ["feature" if name in features else role(name) for name in names]
    missing = [end for end in ENDS if end not in roles]
    unknown = [str(name) or "(no name)" for name, found in zip(names, roles, strict=True) if found is None]
    twice = [found for found in COLUMNS[:-2] if roles.count(found) > 1]
    if missing or unknown or twice:
        what = [f"no column is {' or '.join(missing)}"] if missing else []
        what += [f"{', '.join(unknown)}: not known"] if unknown else []
        what += [f"two columns are {' and '.join(twice)}"] if twice else []
        raise FormatError(
            f"{path} has the columns {', '.join(map(str, names))}: {'; '.join(what)}. Say what they are, in "
            "their order, with --edge-columns, such as --edge-columns src,dst,weight,_ (_: ignored); if this line is "
            "an edge, add --no-heading. Columns of numbers that describe the edges are named with --edge-features"
            + ("" if len(missing) < 2 else f". {TWO_KINDS}")
        )
    return tuple(found for found in roles if found is not None)


def named_ends(columns: Sequence[str], names: Sequence[str] | None) -> tuple[str, ...]:
    """The names of the columns of both ends where they may be nodes of two kinds (userId, movieId), else ().

    columns: one of `COLUMNS` for each column. names: names in the heading, or None.
    """
    if names is None:
        return ()
    source, target = (str(names[columns.index(end)]) for end in ENDS)
    alike = source[:-1] == target[:-1] or role(source) in ENDS or role(target) in ENDS
    return () if alike else (source, target)


def said(columns: Sequence[str], names: Sequence[str] | None) -> str:
    """`from -> src, kind ignored`: the meaning of each column. names: names in the heading, or None."""
    names = [f"column {number + 1}" for number in range(len(columns))] if names is None else names
    return ", ".join(
        f"{name} {'ignored' if column == '_' else f'-> {column}'}" for name, column in zip(names, columns, strict=True)
    )
