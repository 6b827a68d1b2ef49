"""Files of results by node: HDF5 or CSV, by the suffix of their name.

One rank writes them, slab by slab. Each file is complete under its name, or not there, and none ever lies whole in
memory.
"""

import contextlib
import csv
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hpcgnn.comm.communicator import Communicator
from hpcgnn.config import Config
from hpcgnn.errors import RunDirError
from hpcgnn.graphfile.hdf5 import as_texts, create_dataset, replacing, text_type, write_attributes, written_file
from hpcgnn.output_files import check_outputs, files_of_run

EXPECTED = ".h5 or .hdf5 (arrays), or .csv (a table)"
# Numbers whose text is made at a time; as Python has them they take some fifty bytes each.
_NUMBERS = 1 << 19
#: put(nodes int64 (m,), their ids (m,) or None, {name: rows (m, width)}): the next rows of the file.
Put = Callable[[np.ndarray, np.ndarray | None, Mapping[str, np.ndarray]], None]


@dataclass(frozen=True)
class Contents:
    """The contents of a result file.

    Attributes:
        num_rows: number of rows.
        widths, dtypes: {name: width or dtype of its rows}, with or without `prediction`.
        predicted: names of a table's columns of predictions.
        some: whether the rows cover only some of the nodes, so that the file must hold their numbers.
        ids: whether nodes have ids. id_dtype: their type, of words `text_type`.
        class_names: [] where classes have no names.
        origin: {name: number or text}, the run that the results are from.
        vectors: names of rows of one number, whose array is (n,). An array (n, 1) would be broadcast silently against
            labels (n,) to (n, n).
        column_names: names of several labels or targets, empty where they have none.
    """

    num_rows: int
    widths: Mapping[str, int]
    dtypes: Mapping[str, np.dtype]
    predicted: Sequence[str]
    some: bool
    ids: bool
    id_dtype: np.dtype
    class_names: Sequence[str]
    origin: Mapping[str, Any]
    vectors: Collection[str] = ()
    column_names: Sequence[str] = ()

    def shape(self, name: str) -> tuple[int, ...]:
        """Of the array of the rows of this name."""
        return (self.num_rows,) if name in self.vectors else (self.num_rows, self.widths[name])

    def columns(self, name: str) -> list[str]:
        """The names of a table's columns for the rows of this name."""
        if name == "prediction":
            return list(self.predicted)
        if name in self.vectors:
            return [name]
        of_outputs = name in ("probability", "logit")
        return [f"{name}_{column}" for column in (of_outputs and self.column_names) or range(self.widths[name])]


def check_name(option: str, path: str | Path) -> None:
    """Raise RunDirError for a suffix of no known format. option: the option that named the file."""
    path = Path(path)
    if path.suffix.lower() not in WRITERS:
        raise RunDirError(
            f"{option} {path}: expected a name that ends with {EXPECTED}, got {path.suffix or 'none of them'!r}; "
            f"{path.with_suffix('.csv')} is a table"
        )


def files_read(config: Config) -> list[str | Path]:
    """The files that a command reads which uses a graph, and a run if there is one."""
    run = files_of_run(config.run.run_dir) if config.run.run_dir else ()
    return [config.data.graph, config.model.plugin, *run]


def check_results(
    option: str, path: str | Path, comm: Communicator, inputs: Iterable[str | Path], force: bool = False
) -> None:
    """`check_outputs` for all ranks of a job, who bring results into order by messages. Rank 0 alone looks: others may
    not see the directory. Raises ConfigError on all of them where their transport cannot carry that.

    inputs: files that the command reads; force: an existing file is to be replaced.
    """
    comm.check_pairwise(f"{option} {path}: results are sent")
    if comm.rank == 0:
        check_outputs({option: path}, inputs, force)


def _table(
    contents: Contents, nodes: np.ndarray, ids: np.ndarray | None, slab: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """{heading: column (m,)} of some rows."""
    columns = {"node": nodes} if ids is None else {"node": nodes, "id": ids}
    for name in contents.widths:
        columns |= dict(zip(contents.columns(name), slab[name].T, strict=True))
        if name == "prediction" and contents.class_names:
            columns["class_name"] = np.array(contents.class_names, object)[slab[name][:, 0]]
    return columns


def _headings(contents: Contents) -> list[str]:
    empty = {name: np.zeros((0, width), contents.dtypes[name]) for name, width in contents.widths.items()}
    nodes = np.zeros(0, np.int64)
    return list(_table(contents, nodes, nodes if contents.ids else None, empty))


@contextlib.contextmanager
def written_hdf5(path: str | Path, contents: Contents) -> Iterator[Put]:
    """Yield the verb that writes the next rows of new arrays in HDF5. Raises FormatError where they cannot be
    written.
    """
    names, done = contents.class_names, 0
    with replacing(path) as temporary, written_file(temporary) as (file, check):
        write_attributes(file, **contents.origin)
        if names:
            dtype = text_type(max(len(name.encode()) for name in names))
            create_dataset(file, "class_names", (len(names),), dtype)[:] = as_texts(names, dtype)
        arrays = {name: (contents.shape(name), dtype) for name, dtype in contents.dtypes.items()}
        if contents.some:
            arrays["node"] = (contents.num_rows,), np.dtype(np.int64)
        if contents.ids:
            arrays["id"] = (contents.num_rows,), contents.id_dtype
        made = {name: create_dataset(file, name, *array) for name, array in arrays.items()}

        def put(nodes: np.ndarray, ids: np.ndarray | None, slab: Mapping[str, np.ndarray]) -> None:
            nonlocal done
            rows = {**slab, "node": nodes}
            if ids is not None:
                rows["id"] = as_texts(ids.tolist(), contents.id_dtype) if ids.dtype == object else ids
            for name, dataset in made.items():
                dataset[done : done + len(nodes)] = rows[name].reshape(len(nodes), *dataset.shape[1:])
            check()
            done += len(nodes)

        yield put


@contextlib.contextmanager
def written_csv(path: str | Path, contents: Contents) -> Iterator[Put]:
    """Yield the verb that writes the next rows of a new table in CSV. Raises FormatError where it cannot be written.

    Floating-point numbers have the fewest digits that give the same number again.
    """
    step = max(1, _NUMBERS // sum(contents.widths.values()))
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(_headings(contents))

        def put(nodes: np.ndarray, ids: np.ndarray | None, slab: Mapping[str, np.ndarray]) -> None:
            table = _table(contents, nodes, ids, slab)
            columns = [each.astype(str) if each.dtype.kind == "f" else each for each in table.values()]
            for start in range(0, len(nodes), step):
                lines.writerows(zip(*(each[start : start + step].tolist() for each in columns), strict=True))

        yield put


#: By the suffix of a file's name.
WRITERS = {".h5": written_hdf5, ".hdf5": written_hdf5, ".csv": written_csv}
