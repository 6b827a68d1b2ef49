"""The ids that nodes had before a graph was partitioned: those of DGL's pipelines, and the id maps of GraphStorm.

A partitioning renumbers the nodes of a type. The numbers from before are in node_mapping.pt (GraphStorm), or in
orig_nids.dgl of each part (DGL's distributed partitioning). GraphStorm's construction of a graph numbers ids of the
user's tables before that, and leaves these in raw_id_mappings/TYPE/*.parquet, or in TYPE_id_remap.parquet of versions
up to 0.2.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hpcgnn.errors import FormatError
from hpcgnn.extras.readers.dgl_binary import read_tensors
from partition_tools.readers.arrays.in_memory import plain_ids
from partition_tools.readers.arrays.torch_file import load_torch_file
from partition_tools.readers.tables.frames import open_table
from partition_tools.workspace.progress import Reporter

MAPPING, OF_PARTS, FOLDER, OF_TYPE = "node_mapping.pt", "orig_nids.dgl", "raw_id_mappings", "_id_remap.parquet"
#: Columns with the user's ids and their numbers, in versions of GraphStorm.
_COLUMNS = (("orig", "new"), ("node_str_id", "node_int_id"))


def ids_before(folder: Path, parts: Sequence[Path], counts: Mapping[str, int], reporter: Reporter) -> np.ndarray | None:
    """The ids of all nodes, type by type, or None where nothing says them. Raises FormatError.

    parts: the folders of the parts; counts: {type: its nodes}. Ids that several types share are written TYPE/ID.
    """
    numbers = _numbers(folder, parts, counts)
    raw = {kind: found for kind in counts if (found := _raw(folder, kind, reporter)) is not None}
    if numbers is None:
        if raw:
            reporter.warn(
                f"{folder} has ids of {', '.join(raw)}, and neither {MAPPING} nor {OF_PARTS} says whose they are. "
                "Nodes keep DGL's numbers"
            )
        return None
    ids = {kind: _looked_up(folder, kind, found, raw.get(kind)) for kind, found in numbers.items()}
    if len(ids) == 1:
        return next(iter(ids.values()))
    alike = len({each.dtype.kind for each in ids.values()}) == 1 and len(raw) == len(ids)
    all_ids = np.concatenate(list(ids.values())) if alike else np.zeros(0, np.int64)
    if alike and len(np.unique(all_ids)) == len(all_ids):
        return all_ids
    first = next(iter(ids))
    reporter.warn(f"types have ids in common: nodes have the ids TYPE/ID, such as {first}/{ids[first][0]}")
    return np.concatenate([np.char.add(f"{kind}/", each.astype(str)) for kind, each in ids.items()])


def _numbers(folder: Path, parts: Sequence[Path], counts: Mapping[str, int]) -> dict[str, np.ndarray] | None:
    """{type: the number of each node before the partitioning}, or None."""
    if (folder / MAPPING).exists():
        where: Path = folder / MAPPING
        told: Any = load_torch_file(where, {})
        told = told if isinstance(told, dict) else dict.fromkeys(counts, told)  # one type has no dictionary
        found = {kind: np.asarray(told[kind]) for kind in counts if kind in told}
    elif all((part / OF_PARTS).exists() for part in parts):
        where = parts[0] / OF_PARTS
        tensors = [read_tensors(part / OF_PARTS) for part in parts]
        found = {
            kind: np.concatenate([each[kind] for each in tensors if kind in each])
            for kind in counts
            if any(kind in each for each in tensors)
        }
    else:
        return None
    for kind, count in counts.items():
        if kind not in found or found[kind].dtype.kind not in "iu" or found[kind].shape != (count,):
            got = f"{found[kind].dtype}{list(found[kind].shape)}" if kind in found else "none"
            raise FormatError(f"{where}: expected {count} integers for the nodes of type {kind}, got {got}")
    return found


def _raw(folder: Path, kind: str, reporter: Reporter) -> np.ndarray | None:
    """The user's ids of a type by their numbers, or None: it has no map, as where its ids were numbers from 0."""
    path = next((path for path in (folder / FOLDER / kind, folder / f"{kind}{OF_TYPE}") if path.exists()), None)
    return None if path is None else _by_number(path, reporter)


def _by_number(path: Path, reporter: Reporter) -> np.ndarray:
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise FormatError(f"{path} has no .parquet files; expected a map of ids, as GraphStorm writes it")
    words, numbers = [], []
    for file in files:
        opened = open_table(file)
        pair = next((pair for pair in _COLUMNS if set(pair) <= set(opened.fields)), None)
        if pair is None:
            raise FormatError(f"{file} has the columns {', '.join(opened.fields)}; expected orig and new")
        frame = opened.frame(reporter)
        word, number = (frame[str(opened.fields.index(name))].to_numpy() for name in pair)
        words.append(word)
        numbers.append(number)
    places, ids = np.concatenate(numbers), plain_ids(np.concatenate(words))
    order = np.argsort(places)
    if not np.array_equal(places[order], np.arange(len(places))):
        raise FormatError(f"{path}: expected the numbers 0..{len(places) - 1}, each once; is a part missing?")
    return ids[order]


def _looked_up(folder: Path, kind: str, numbers: np.ndarray, raw: np.ndarray | None) -> np.ndarray:
    if raw is None:
        return numbers
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(raw):
        raise FormatError(
            f"{folder}: nodes of type {kind} have the numbers {numbers.min()} to {numbers.max()}, and the map of ids "
            f"has 0..{len(raw) - 1}; the map is of another graph"
        )
    return raw[numbers]
