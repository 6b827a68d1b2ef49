"""Common parts of OGB's layouts: compressed tables without headings, and one folder of splits."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.canonical.links import NAMES, PAIRS, SOURCE, TARGET
from partition_tools.readers.arrays.in_memory import as_links
from partition_tools.readers.arrays.torch_file import NUMPY, load_torch_file
from partition_tools.readers.formats.edgelist import ENDS, read_edges
from partition_tools.readers.tables.frames import open_table
from partition_tools.readers.tables.values import numbers_of, numeric, typed
from partition_tools.workspace.progress import Reporter
from partition_tools.workspace.scratch import Scratch
from partition_tools.workspace.scratch_arrays import key_of

SPLITS = (("train", "train"), ("val", "valid"), ("test", "test"))


def columns(file: Path, heading: bool = False) -> dict[str, np.ndarray]:
    """{name or number of a column: its values} of a table."""
    opened = open_table(file, heading)
    frame = opened.frame(Reporter())
    return {
        name: typed(frame[str(place)], file) for place, name in enumerate(opened.fields if heading else frame.columns)
    }


def table(file: Path) -> np.ndarray | None:
    """The numbers of a table without heading, 2-D, or None if there is no such file. An empty one has no columns."""
    if not file.is_file():
        return None
    found = [numeric(each, file) for each in columns(file).values()]
    return np.stack(found, 1) if found else np.zeros((0, 0))


def say_unread(path: Path, there: Iterable[str], known: Iterable[str], reporter: Reporter) -> None:
    """One warning that names the unread files of a data set. there, known: names without their suffix."""
    unread = sorted(set(there) - set(known))
    if unread:
        reporter.warn(f"{path}: not read: {', '.join(unread)}")


def edge_columns(file: Path, scratch: Scratch) -> tuple[np.ndarray, np.ndarray]:
    """Sources and destinations, int (E,) each, of `file`, mapped if it is large. FormatError if they are not, or if it
    is missing.
    """
    if not file.is_file():
        raise FormatError(f"there is no {file}; unpack the data set again")
    opened = open_table(file, heading=False)
    if opened.fields and len(opened.fields) != 2:
        raise FormatError(f"{file} must have two columns of node ids, got {len(opened.fields)}")
    found = read_edges(opened, ENDS, (), False, scratch)
    check_edges(file, found.src.shape[0], table(file.with_name("num-edge-list.csv.gz")))
    return np.asarray(found.src), np.asarray(found.dst)


def check_edges(file: Path, count: int, stated: np.ndarray | None) -> None:
    """FormatError if another number of edges is stated than there is."""
    if stated is not None and stated.size == 1 and stated.sum() != count:
        raise FormatError(f"{file} has {count} edges but {int(stated.sum())} are stated; unpack the data set again")


def rows(file: Path, scratch: Scratch) -> np.ndarray | None:
    """As `table`, mapped if it is large."""
    opened = open_table(file, heading=False) if file.is_file() else None
    if opened is None or not opened.is_large(scratch):
        return table(file)
    key = f"source/{key_of(file)}"
    with scratch.appending(key, np.float64) as append:
        for frame in opened.blocks(scratch.reporter, scratch.memory):
            append(np.stack([numbers_of(column, file) for column in frame], 1).reshape(-1))
    return scratch.load(key).reshape(-1, len(opened.fields))


def split_folder(path: Path) -> Path | None:
    """split/<type> of a data set, or None where there are no splits."""
    folders = sorted(folder for folder in path.glob("split/*") if folder.is_dir())
    if len(folders) > 1:
        raise FormatError(f"{path} has several split types ({', '.join(f.name for f in folders)}); leave one in split/")
    return folders[0] if folders else None


def split_links(folder: Path) -> dict[str, dict[str, np.ndarray]]:
    """{"val" | "test": {name: array}} of the held-out edges of a set of link prediction, {} for one of nodes. The edges
    of training, train.pt, are the graph's, and are not read.
    """
    files = {name: folder / f"{file}.pt" for name, file in SPLITS if name != "train"}
    if not any(path.is_file() for path in files.values()):
        return {}
    if missing := [path for path in files.values() if not path.is_file()]:
        raise FormatError(f"there is no {missing[0]}; unpack the data set again")
    found = {}
    for name, path in files.items():
        arrays = load_torch_file(path, NUMPY)
        if not isinstance(arrays, Mapping) or not (PAIRS in arrays or SOURCE in arrays):
            got = ", ".join(map(str, arrays)) if isinstance(arrays, Mapping) else type(arrays).__name__
            raise FormatError(f"{path} holds {got}; expected a dict with {PAIRS}, or {SOURCE} and {TARGET}")
        found[name] = {part: arrays[part] for part in NAMES if part in arrays}
    return as_links(found, str(folder))


def split_ids(folder: Path) -> dict[str, np.ndarray]:
    """{"train", "val", "test": node ids int64} of the tables in a folder; all three must be there."""
    split = {}
    for name, file in SPLITS:
        ids = table(folder / f"{file}.csv.gz")
        if ids is None:
            raise FormatError(f"{folder} has no {file}.csv.gz")
        if ids.size and (ids.dtype.kind not in "iu" or ids.shape[1] != 1):
            raise FormatError(
                f"{folder / f'{file}.csv.gz'} must have one node id per line, got {ids.dtype}{list(ids.shape)}"
            )
        split[name] = ids.reshape(-1).astype(np.int64)
    return split
