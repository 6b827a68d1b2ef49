"""Text tables that are too large to be parsed at once: blocks of whole lines, parsed on all cores, into arrays on disk.

The result is the same as of `tables.read_frame` for numbers. Words, and numbers whose spelling matters, are left to
`read_frame`: a block does not show the rest of a column.
"""

import contextlib
import io
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcgnn import cores
from hpcgnn.errors import FormatError
from partition_tools.readers.tables.headings import ENDS
from partition_tools.readers.tables.tables import Layout, layout, numeric, parse, warn_of_comments
from partition_tools.readers.tables.text import Comments, blocks, in_words
from partition_tools.readers.tables.written_ids import has_odd_numbers
from partition_tools.workspace.scratch import Scratch
from partition_tools.workspace.scratch_arrays import key_of

if TYPE_CHECKING:
    import pandas as pd

# A parsed table takes about so many bytes for one of text, and text about so many for one of .gz.
PARSED, UNPACKED = 3, 4
_DTYPES = {"weight": np.float64, "features": np.float64}
SMALLEST_BLOCK, LARGEST_BLOCK = 1 << 10, 1 << 25


class NotPlainNumbers(Exception):
    """Ids or types that need the whole column: words, both 01 and 1, more than 63 bits."""


def is_large_table(path: Path, scratch: Scratch) -> bool:
    """Whether a text table would take too much memory if it were parsed at once."""
    size = path.stat().st_size * (UNPACKED if path.suffix == ".gz" else 1)
    return PARSED * size > scratch.memory // 4


def read_edges(
    path: Path,
    shape: Layout,
    names: Sequence[str],
    places: Sequence[int],
    relabel: bool,
    scratch: Scratch,
) -> dict[str, np.ndarray]:
    """{"src" | "dst" | "weight" | "type": (E,) mapped array} of an edge list: ids and types int64, weights float64; and
    {"features": float64 (E, F)} of the columns at `places`, if there are any.

    shape: the `Layout` of the file. names: the meanings of its columns, of `headings.COLUMNS`. A finished array is not
    made again. Raises FormatError naming the faulty edge, and NotPlainNumbers.
    """
    key = f"source/{key_of(path)}"
    wanted = [name for name in names if name not in ("_", "feature")] + (["features"] if places else [])
    if not all(scratch.done(f"{key}-{name}") for name in wanted):
        with contextlib.ExitStack() as stack:
            append = {
                name: stack.enter_context(scratch.appending(f"{key}-{name}", _DTYPES.get(name, np.int64)))
                for name in wanted
            }
            edges = 0
            for frame, odd in frames(path, shape, scratch, check=has_odd_numbers if relabel else None):
                if odd:
                    raise NotPlainNumbers
                for position, name in enumerate(names):
                    if name in append and len(frame):  # an empty one has no type
                        values = frame.iloc[:, position].to_numpy()
                        append[name](_checked(path, values, name, edges, relabel))
                if places:
                    rows = [numeric(frame.iloc[:, place].to_numpy(), f"{path}: a feature of edges") for place in places]
                    append["features"](np.stack(rows, 1).astype(np.float64).reshape(-1))
                edges += len(frame)
    columns = {name: scratch.load(f"{key}-{name}") for name in wanted}
    if places:
        columns["features"] = columns["features"].reshape(-1, len(places))
    return columns


def _checked(path: Path, values: np.ndarray, name: str, first: int, relabel: bool) -> np.ndarray:
    """Numbers of a column as they are stored. first: the number of the edge that values[0] is of."""
    what = f"{path}: column {name}, from edge {first},"
    if name == "weight":
        return numeric(values, what)
    if values.dtype.kind == "i" or (name == "type" and values.dtype.kind == "u"):
        return values
    if (name in ENDS and relabel) or (name == "type" and values.dtype == object):
        raise NotPlainNumbers  # how a number is written matters: 1e2 and 100 are two ids
    if values.dtype.kind == "f":
        finite = np.isfinite(values)
        if not finite.all():
            raise FormatError(f"{path}: line of edge {first + int(np.argmin(finite))} has no {name}")
        if finite.all() and (np.abs(values) < 2**53).all() and np.array_equal(values, np.rint(values)):
            return values.astype(np.int64)
    remedy = "; --relabel numbers words and the like" if name in ENDS else ""
    raise FormatError(f"{what} has {'ids' if name in ENDS else 'types'} that are not integers{remedy}")


def read_rows(path: Path, scratch: Scratch) -> np.ndarray:
    """A table of numbers without a heading, float64 (rows, columns), mapped. FormatError for one that is damaged."""
    key, shape, rows = f"source/{key_of(path)}", layout(path, header=False), 0
    if not scratch.done(key):
        with scratch.appending(key, np.float64) as append:
            for frame, _ in frames(path, shape, scratch):
                if frame.shape[1] != len(shape.fields):
                    raise FormatError(f"{path}: a row after row {rows} ends with a separator; take it out")
                append(numeric(frame.to_numpy(), f"{path}: from row {rows}, it").reshape(-1))
                rows += len(frame)
    return scratch.load(key).reshape(-1, len(shape.fields))


def frames(
    path: Path,
    shape: Layout,
    scratch: Scratch,
    check: Callable[[bytes], bool] | None = None,
) -> Iterator[tuple["pd.DataFrame", bool]]:
    """(rows, the result of `check` on their text) of each block of a table in turn, parsed by one thread per core.

    Raises FormatError for a table that is damaged.
    """
    workers = len(cores.usable())
    size = min(max(scratch.memory // (4 * (2 * workers + 1) * (1 + PARSED)), SMALLEST_BLOCK), LARGEST_BLOCK)

    def parsed(block: bytes) -> tuple["pd.DataFrame", bool]:
        return _frame(path, block, shape), check is not None and check(b"\n" + block)

    rows, columns, comments = 0, 0, Comments()

    def next_of(waiting: deque[Any]) -> tuple["pd.DataFrame", bool]:
        nonlocal rows, columns
        try:
            frame, checked = waiting.popleft().result()
        except ValueError as error:
            raise FormatError(f"{path} is not a readable table: {error}, counted from row {rows}") from error
        width = frame.shape[1] if len(frame) else 0
        columns = columns or width
        if width > (len(shape.fields) if shape.heading else columns):
            raise FormatError(f"{path}: a row after row {rows} has {width} columns, expected {len(shape.fields)}")
        rows += len(frame)
        return frame, checked

    with (
        scratch.reporter.bar(path.stat().st_size, f"reading {path}", "B") as progress,
        ThreadPoolExecutor(workers, initializer=cores.use_all) as pool,
        in_words(path),
    ):
        waiting: deque[Any] = deque()
        skip = shape.skip + shape.heading
        for block in blocks(path, size, comments, progress):
            while skip and block:
                block, skip = block[block.index(b"\n") + 1 :] if b"\n" in block else b"", skip - 1
            if not block:
                continue
            waiting.append(pool.submit(parsed, block))
            if len(waiting) > workers:
                yield next_of(waiting)
        while waiting:
            yield next_of(waiting)
    warn_of_comments(path, comments, scratch.reporter)


def _frame(path: Path, block: bytes, shape: Layout) -> "pd.DataFrame":
    """The rows of a block, of at least as many columns as the table has."""
    import pandas

    try:
        frame = parse(path, io.BytesIO(block), shape, header=None)
    except pandas.errors.EmptyDataError:  # comments alone
        return pandas.DataFrame(columns=range(len(shape.fields)))
    return frame if frame.shape[1] >= len(shape.fields) else frame.reindex(columns=range(len(shape.fields)))
