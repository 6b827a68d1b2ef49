"""The meanings of an edge list's columns, from the names in its heading.

Only the heading of a text table shows the source of an edge, and whether a third column is a weight, a type or a time.
So names are honoured wherever they stand. A column with an uncertain meaning is an error that asks for it.
"""

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from hpcgnn.errors import FormatError
from partition_tools.graph.counts import TWO_KINDS

# What --edge-columns may call a column; `feature` and `_` as often as wanted.
COLUMNS = ("src", "dst", "weight", "type", "feature", "_")
_WORDS = {
    "src": "src source from u start begin origin sender",
    "dst": "dst dest destination target tgt to v end stop receiver terminal",
    "weight": "weight weights wt wgt w value val",
    "type": "type kind relation rel etype",
    "_": "time timestamp timestamps ts date datetime year unixtime unixtimestamp epoch timestep edgeid eid index "
    "unnamed0",
}
ROLES = {word: role for role, words in _WORDS.items() for word in words.split()}
ENDS = ("src", "dst")
# The words for the three splits.
_SPLIT_WORDS = {"train": "train training", "val": "val valid validation dev", "test": "test testing"}
SPLIT_OF = {word: split for split, words in _SPLIT_WORDS.items() for word in words.split()}
# What may stand before or after such a word: FromNodeId, source_id, node_to, edge_weight, relation_type.
_ABOUT_ENDS = ("nodeid", "vertexid", "node", "vertex", "id", "idx", "index")
_ABOUT_EDGES = ("edge", "link", "relation")
_PAIR = re.compile(r"(.*?)[_\-. ]?([12]|[ab]|[01])$", re.IGNORECASE)
_PAIRS = (("1", "2"), ("0", "1"), ("a", "b"))
_NO_IDS = ("class", "label", "type", "category", "target", "split")
_ALWAYS_IDS = ("id", "node", "nodeid", "vertex", "vertexid")
_IDS = set("ids idid nodeids nid vid uid guid uuid idx index nodeidx nodeindex".split())
# What ids are written of without a mark between: userid, paperid.
_OF = set("user paper author item entity account person gene protein atom doc document page product customer".split())


def role(name: object) -> str | None:
    """The one of `COLUMNS` that a column of this name is, or None for a name that is not known."""
    word = _plain(name)
    if word in ROLES:
        return ROLES[word]
    for about in _ABOUT_ENDS:
        for rest in (word.removesuffix(about), word.removeprefix(about)):
            if rest != word and ROLES.get(rest) in ENDS:
                return ROLES[rest]
    for about in _ABOUT_EDGES:
        rest = word.removeprefix(about)
        if rest != word and ROLES.get(rest) not in (None, *ENDS):
            return ROLES[rest]
    return "type" if word == "relationtype" else None


def _plain(name: object) -> str:
    return re.sub(r"[^a-z0-9]", "", str(name).lower())


def is_id(name: object, others: int = 1) -> bool:
    """Whether a column of this name holds the ids of nodes: id, node_id, nid, index, paper_id, userId, id:ID. Not
    class_id. others: names of the other columns.
    """
    name, word = str(name).strip(), _plain(name)
    if word in _ALWAYS_IDS:
        return True
    if others < 1 or word.startswith(_NO_IDS):
        return False
    marked = re.search(r"[_\-. :][iI][dD]$|[a-z]I[dD]$", name) is not None
    return marked or word in _IDS or (word.endswith("id") and word[:-2] in _OF)


def may_be_id(name: object) -> bool:
    """Whether a column of this name may hold ids, if its values are distinct: names that end with id, and words for the
    name of a node.
    """
    word = _plain(name)
    return (word.endswith(("id", "key")) or word in ("name", "code", "uri", "url", "iri")) and not word.startswith(
        _NO_IDS
    )


def all_known(names: Sequence[Any]) -> bool:
    """Whether a line of words is beyond doubt the heading of an edge list: each name is known, both ends are among
    them.
    """
    roles = [role(name) for name in names]
    return None not in roles and all(roles.count(end) == 1 for end in ENDS)


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
    if not str(names[0]).strip():  # the numbers of rows, which pandas writes without a name
        roles[0] = "_"
    if not set(ENDS) & set(roles):
        for column, end in zip(_pair(names), ENDS, strict=False):
            roles[column] = end
    missing = [end for end in ENDS if end not in roles]
    unknown = [str(name) for name, found in zip(names, roles, strict=True) if found is None]
    twice = [found for found in COLUMNS[:-2] if roles.count(found) > 1]
    if missing or unknown or twice:
        what = [f"no column of the heading is known as {' or '.join(missing)}"] if missing else []
        what += [f"what {', '.join(name or '(no name)' for name in unknown)} means is not known"] if unknown else []
        what += [f"two columns are known as {' and as '.join(twice)}"] if twice else []
        raise FormatError(
            f"{path} has the columns {', '.join(map(str, names))}: {'; '.join(what)}. Say what they are, in "
            f"their order, with --edge-columns, such as --edge-columns {_suggestion(roles)} (_: ignored); if this "
            f"line is an edge, add --no-heading. Columns of numbers that describe the edges are named with "
            "--edge-features" + ("" if len(missing) < 2 else f". {TWO_KINDS}")
        )
    return tuple(found for found in roles if found is not None)


def named_ends(columns: Sequence[str], names: Sequence[str] | None) -> tuple[str, ...]:
    """The names of the columns of both ends where they may be nodes of two kinds (userId, movieId), else ().

    columns: one of `COLUMNS` for each column. names: names in the heading, or None.
    """
    ends = () if names is None else tuple(names[columns.index(end)] for end in ENDS)
    return () if not ends or _pair(ends) or any(role(name) in ENDS for name in ends) else ends


def _pair(names: Sequence[Any]) -> tuple[int, int] | tuple[()]:
    """The positions of the two columns whose names differ by a number alone (node1 node2, id_1 id_2) or are s and t."""
    plain = [str(name).strip().lower() for name in names]
    if plain.count("s") == plain.count("t") == 1:
        return plain.index("s"), plain.index("t")
    found = {}
    for column, match in enumerate(map(_PAIR.fullmatch, plain)):
        if match is not None and match[1]:
            found[match[1], match[2]] = column
    pairs = [
        (found[stem, one], found[stem, two])
        for stem, _ in found
        for one, two in _PAIRS
        if (stem, one) in found and (stem, two) in found
    ]
    pairs = sorted(set(pairs))
    return pairs[0] if len(pairs) == 1 else ()


def _suggestion(roles: Sequence[str | None]) -> str:
    """A value for --edge-columns: each known column once, and the ends where they are missing."""
    names = [found if found and roles.index(found) == column else "_" for column, found in enumerate(roles)]
    free = sorted((found is not None, column) for column, found in enumerate(roles) if names[column] == "_")
    for (_, column), end in zip(free, (end for end in ENDS if end not in names), strict=False):
        names[column] = end
    return ",".join(names)


def said(columns: Sequence[str], names: Sequence[str] | None) -> str:
    """`from -> src, kind ignored`: the meaning of each column. names: names in the heading, or None."""
    names = [f"column {number + 1}" for number in range(len(columns))] if names is None else names
    return ", ".join(
        f"{name} {'ignored' if column == '_' else f'-> {column}'}" for name, column in zip(names, columns, strict=True)
    )
