"""Nodes with any numbers or words as ids: one numbering, in the sorted order of the ids, for all files of a graph.

Ids come from several files, and an id must mean the same node in all of them. Numbers are compared as numbers and words
as words. An id that is a number in one file and a word in another is an error: two nodes would become one, or one node
two.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.readers.tables.frames import open_table
from partition_tools.readers.tables.headings import is_id
from partition_tools.readers.tables.relabel import Places, distinct
from partition_tools.readers.tables.tables import load_npy
from partition_tools.readers.tables.values import ids_of
from partition_tools.workspace.progress import Reporter
from partition_tools.workspace.scratch import Scratch

_INTEGER = re.compile(r"[+-]?[0-9]+")
# An integer in any spelling that pandas and spreadsheets give it; 1e2 is a word.
_FLOAT = re.compile(r"[+-]?[0-9]+\.0+")
_SPELLED = re.compile(r"([+-]?[0-9]+)(?:\.0*)?")


def read_node_ids(path: Path) -> np.ndarray:
    """The ids of a file, one per row, in the order of the file: text (a heading such as id may stand above) or .npy."""
    if path.suffix == ".npy":
        ids = load_npy(path)
        if ids.dtype.kind not in "iuU" or ids.ndim != 1:
            raise FormatError(
                f"{path} must be a vector of node ids, integers or strings, got {ids.dtype}{list(ids.shape)}"
            )
    else:
        file = open_table(path, heading=False)
        if len(file.fields) != 1:
            raise FormatError(f"{path} must have one node id per row, got {len(file.fields)} columns")
        file = replace(file, heading=not file.separator or is_id(file.fields[0]))
        ids = ids_of(file.frame(Reporter())["0"], path, exact=True)
    if len(np.unique(ids)) != len(ids):
        values, counts = np.unique(ids, return_counts=True)
        raise FormatError(
            f"{path} has the id {values[np.argmax(counts)]} twice; expected each node once, in the order of "
            "the rows of the other tables"
        )
    return ids


def alike(ids: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same ids, all of one kind that sorts and compares as they mean: int64, uint64 or text.

    ids: {where they come from: array of integers or of text}. Columns of 1.0, 2.0, … throughout, as pandas writes
    integers that have a gap, are of integers if all others are, too. Raises FormatError for a number that is written in
    two ways (01 and 1, or 1.0 and 1 in one column) and for an empty id.
    """
    for where, each in ids.items():
        if each.dtype.kind not in "iuU":
            raise FormatError(f"{where}: expected node ids that are integers or words, got {each.dtype}")
        if each.dtype.kind == "U" and (each == "").any():
            raise FormatError(f"{where}: row {int(np.argmax(each == ''))} has an empty node id")
    ids = _without_fractions(ids)
    if any(each.dtype.kind == "U" for each in ids.values()):
        texts = np.unique(np.concatenate([np.unique(each).astype(str) for each in ids.values()]))
        numbers: dict[int, str] = {}
        for text in texts.tolist():
            spelled = _SPELLED.fullmatch(text)
            other = numbers.setdefault(int(spelled[1]), text) if spelled else text
            if other != text:
                raise FormatError(
                    f"the node ids {other} and {text} are one number but two texts; write it in one way in "
                    f"{', '.join(ids)}"
                )
        plain = len(numbers) == len(texts) and all(_INTEGER.fullmatch(text) for text in numbers.values())
        kind = _integers(list(numbers)) if plain else None
        return {where: each.astype(str) if kind is None else _as_numbers(each, kind) for where, each in ids.items()}
    kind = _integers([limit for each in ids.values() if each.size for limit in (int(each.min()), int(each.max()))])
    if kind is None:
        return {where: each.astype(str) for where, each in ids.items()}
    return {where: each.astype(kind, copy=False) for where, each in ids.items()}


def _without_fractions(ids: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """The same ids; if each vector has integers alone or floats without a fraction alone, all as integers."""
    texts = {where: np.unique(each).tolist() for where, each in ids.items() if each.dtype.kind == "U"}
    floats = {where for where, each in texts.items() if each and all(map(_FLOAT.fullmatch, each))}
    if not floats or not all(
        all(map(_INTEGER.fullmatch, each)) for where, each in texts.items() if where not in floats
    ):
        return ids
    return {
        where: np.array([text.partition(".")[0] for text in each.tolist()]) if where in floats else each
        for where, each in ids.items()
    }


def _integers(numbers: Sequence[int]) -> type[np.integer] | None:
    """The type that holds all of these integers; None if there is none."""
    low, high = min(numbers, default=0), max(numbers, default=0)
    return np.int64 if low >= -(2**63) and high < 2**63 else np.uint64 if low >= 0 and high < 2**64 else None


def _as_numbers(ids: np.ndarray, kind: type[np.integer]) -> np.ndarray:
    if ids.dtype.kind != "U":
        return ids.astype(kind)
    values, back = np.unique(ids, return_inverse=True)
    return np.array([int(value) for value in values.tolist()], kind)[back]


def numbered(
    edges: dict[str, np.ndarray],
    keyed: dict[str, np.ndarray],
    order: np.ndarray | None,
    order_path: Path | None,
    scratch: Scratch,
) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray | None]:
    """(all ids, sorted; {name: place in them} of `edges` and `keyed`, {name: ids}, and of `order`, or None).

    order: the ids that there are, read from order_path; None to take all that occur. Raises FormatError for an id that
    `order` does not have, and for a table that shares no id with the edges. Places of large vectors of integers are
    mapped files of `scratch`. Further memory: 16 bytes per id of a node, words in full.
    """
    given = {**edges, **keyed} | ({} if order is None else {"--node-ids": order})
    same = alike(given)
    if order is None:
        known = distinct([same[end] for end in edges], scratch)
        names = distinct([known, *(same[name] for name in keyed)], scratch)
        for name in keyed:
            ids = same[name]
            if len(known) and len(ids) and not np.isin(ids, known).any():
                end = next(same[end] for end in edges if len(same[end]))
                raise FormatError(
                    f"no id of the {name} (such as {ids[0]}) is an id of the edges (such as {end[0]}); the ids "
                    "must be written alike"
                )
    else:
        names = np.unique(same["--node-ids"])
        for name, ids in same.items():
            ids = distinct([ids], scratch)
            unknown = ids[~np.isin(ids, names)]
            if len(unknown):
                raise FormatError(
                    f"the {name} have the id {unknown[0]}, which {order_path} does not ({len(unknown)} such ids); "
                    "it must name every node"
                )
    find = Places(names, scratch)
    places = {name: find(ids, name) for name, ids in same.items()}
    return names, places, places.get("--node-ids")
