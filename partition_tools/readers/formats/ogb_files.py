"""Common parts of OGB's layouts: compressed tables without headings, and one folder of splits."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from hpcgnn.errors import FormatError
from partition_tools.canonical.links import NAMES, PAIRS, SOURCE, TARGET
from partition_tools.readers.arrays.in_memory import as_links
from partition_tools.readers.arrays.torch_file import NUMPY, load_torch_file
from partition_tools.readers.tables.headings import ENDS
from partition_tools.readers.tables.tables import layout, numeric, read_frame
from partition_tools.readers.tables.text_blocks import is_large_table, read_edges, read_rows
from partition_tools.workspace.progress import Reporter
from partition_tools.workspace.scratch import Scratch

SPLITS = (("train", "train"), ("val", "valid"), ("test", "test"))


def table(file: Path) -> np.ndarray | None:
    """The numbers of a table without heading, 2-D, or None if there is no such file. An empty one has no columns."""
    return numeric(read_frame(file, header=False).to_numpy(), file) if file.is_file() else None


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
    if is_large_table(file, scratch):
        shape = layout(file, header=False)
        if len(shape.fields) == 2:
            columns = read_edges(file, shape, ENDS, (), False, scratch)
            return columns["src"], columns["dst"]
    edges = table(file)
    if edges is None or edges.size == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
        raise FormatError(f"{file} must have two columns of node ids, got {edges.shape[1]} of {edges.dtype}")
    return edges[:, 0], edges[:, 1]


def rows(file: Path, scratch: Scratch) -> np.ndarray | None:
    """As `table`, mapped if it is large."""
    large = file.is_file() and is_large_table(file, scratch)
    return read_rows(file, scratch) if large else table(file)


def split_folder(path: Path, kind: str | None = None) -> Path | None:
    """split/<type> of a data set: of the type `kind`, or the only one; None where there are no splits."""
    if kind is not None:
        if not (path / "split" / kind).is_dir():
            raise FormatError(f"there is no {path / 'split' / kind}; unpack the data set again")
        return path / "split" / kind
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
